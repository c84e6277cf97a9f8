package access

import (
	"slices"
	"time"
)

// MaxSession is how long a browser's session lasts at most.
const MaxSession = 12 * time.Hour

// maxEnded is how many sessions of browsers are remembered one by one, after they were signed out.
const maxEnded = 256

// EndedSession is a browser's session that was signed out before its time. With Before it stands for all sessions of
// its token that were opened until then.
type EndedSession struct {
	ID      string    `json:"id,omitempty"`
	Token   string    `json:"token"` // its id
	Before  time.Time `json:"before,omitzero"`
	Expires time.Time `json:"expires"` // nobody need know of it after that
}

// EndsSession reports whether one of the ended sessions is, or stands for, a session of a token.
func EndsSession(ended []EndedSession, id, token string, opened time.Time) bool {
	return slices.ContainsFunc(ended, func(e EndedSession) bool {
		return e.ID == id && e.ID != "" || e.Token == token && !opened.After(e.Before)
	})
}

// EndSession adds an ended session, and forgets the expired ones. If there are too many, all earlier sessions of the
// token that has most of them count as ended.
func EndSession(ended []EndedSession, one EndedSession, now time.Time) []EndedSession {
	kept := slices.DeleteFunc(slices.Clone(ended), func(e EndedSession) bool {
		return !now.Before(e.Expires) || e.ID == one.ID
	})
	if len(kept) < maxEnded {
		return append(kept, one)
	}
	kept = append(kept, one)
	of, most := map[string]int{}, one.Token
	for _, e := range kept {
		if of[e.Token]++; of[e.Token] > of[most] {
			most = e.Token
		}
	}
	kept = slices.DeleteFunc(kept, func(e EndedSession) bool { return e.Token == most })
	return append(kept, EndedSession{Token: most, Before: now, Expires: now.Add(MaxSession)})
}
