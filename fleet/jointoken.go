package fleet

import (
	"slices"
	"strings"
	"time"
)

const (
	// MaxTokenUses bounds how many agents a join token with a maximum may let in.
	MaxTokenUses = 1000
	// maxUsesKept bounds the uses that a cluster counts, of all its tokens, so that its state stays small.
	maxUsesKept = 5000
	// maxRevokedKept is how many revoked tokens a cluster remembers. Hubs forget a revoked token within seconds; until
	// then the cluster refuses it.
	maxRevokedKept = 200
)

// JoinToken is what a cluster must know of the token that an agent joins with. It is not the secret. The zero value is
// no token of ours, as while security is off.
type JoinToken struct {
	ID string `json:"id,omitempty"`
	// MaxUses is how many agents may join with it; 0: any number.
	MaxUses int `json:"max_uses,omitempty"`
	// ExpiresAt is when it ends by itself; zero: never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// TokenUses are the agents that joined with a token that has a maximum. An agent counts once, however often it
// registers.
type TokenUses struct {
	ID        string    `json:"id"`
	Agents    []string  `json:"agents"` // sorted
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// RevokedToken is a token that no agent joins with any more.
type RevokedToken struct {
	ID string `json:"id"`
	// EndSessions says that those that have joined with it must stop too.
	EndSessions bool `json:"end_sessions,omitempty"`
}

// TokenLedger is what a cluster remembers of join tokens.
type TokenLedger struct {
	// TokenUses count the join tokens that have a maximum, and RevokedTokens are the newest that were revoked.
	TokenUses     []TokenUses    `json:"token_uses,omitempty"`
	RevokedTokens []RevokedToken `json:"revoked_tokens,omitempty"`
}

// refuseToken says why the credential of a join does not count here; empty when it does. An agent that resumes shows
// the session that it has instead of its token, and may only go on with that.
func (c *Cluster) refuseToken(j Join) string {
	m := c.Member(j.AgentID)
	own := m != nil && m.Instance == j.Instance
	revoked, ended := c.revoked(j.Token.ID)
	switch {
	case own && (ended || j.Resume && m.Revoked):
		return RefusedRevoked
	case j.Resume && !own:
		if m != nil && slices.Contains(m.FencedInstances, j.Instance) {
			return RefusedFenced
		}
		return RefusedResume
	case !j.Resume && revoked:
		return RefusedToken
	case !j.Resume && !c.mayUse(j.Token, j.AgentID):
		return RefusedUses
	}
	return ""
}

func (l *TokenLedger) revoked(id string) (revoked, ended bool) {
	i := slices.IndexFunc(l.RevokedTokens, func(r RevokedToken) bool { return r.ID == id })
	return i >= 0, i >= 0 && l.RevokedTokens[i].EndSessions
}

func (l *TokenLedger) usesOf(id string) *TokenUses {
	if i := slices.IndexFunc(l.TokenUses, func(u TokenUses) bool { return u.ID == id }); i >= 0 {
		return &l.TokenUses[i]
	}
	return nil
}

// UsesOf is how many agents have joined with a token that has a maximum.
func (l *TokenLedger) UsesOf(id string) int {
	if u := l.usesOf(id); u != nil {
		return len(u.Agents)
	}
	return 0
}

func (l *TokenLedger) mayUse(t JoinToken, agentID string) bool {
	if t.MaxUses == 0 {
		return true
	}
	kept := 0
	for i := range l.TokenUses {
		kept += len(l.TokenUses[i].Agents)
	}
	u := l.usesOf(t.ID)
	if u == nil {
		return kept < maxUsesKept
	}
	_, counted := slices.BinarySearch(u.Agents, agentID)
	return counted || len(u.Agents) < t.MaxUses && kept < maxUsesKept
}

// countUse notes that an agent has joined with a token. Tokens whose time is over are forgotten: nobody joins with
// them.
func (l *TokenLedger) countUse(t JoinToken, agentID string, now time.Time) {
	if t.MaxUses == 0 {
		return
	}
	l.TokenUses = slices.DeleteFunc(l.TokenUses, func(u TokenUses) bool {
		return !u.ExpiresAt.IsZero() &&
			u.ExpiresAt.Before(now) && u.ID != t.ID
	})
	u := l.usesOf(t.ID)
	if u == nil {
		l.TokenUses = append(l.TokenUses, TokenUses{ID: t.ID, ExpiresAt: t.ExpiresAt})
		u = &l.TokenUses[len(l.TokenUses)-1]
	}
	if i, counted := slices.BinarySearch(u.Agents, agentID); !counted {
		u.Agents = slices.Insert(u.Agents, i, agentID)
	}
}

// RevokeToken keeps agents out that come with a token. With endSessions those that joined with it must stop as well;
// they are returned as far as they are connected, and cannot come back with the sessions that they had.
func (c *Cluster) RevokeToken(id string, endSessions bool) (ended []string) {
	if _, before := c.revoked(id); before {
		endSessions = true
	}
	c.revoke(id, endSessions)
	if !endSessions {
		return nil
	}
	for i := range c.Members {
		m := &c.Members[i]
		if m.JoinToken != id {
			continue
		}
		m.Revoked = true
		if m.Connected() {
			ended = append(ended, m.AgentID)
		}
	}
	return ended
}

// revoke remembers a revoked token; the oldest gives way.
func (l *TokenLedger) revoke(id string, endSessions bool) {
	l.TokenUses = slices.DeleteFunc(l.TokenUses, func(u TokenUses) bool { return u.ID == id })
	l.RevokedTokens = slices.DeleteFunc(l.RevokedTokens, func(r RevokedToken) bool { return r.ID == id })
	l.RevokedTokens = append(l.RevokedTokens, RevokedToken{ID: id, EndSessions: endSessions})
	if extra := len(l.RevokedTokens) - maxRevokedKept; extra > 0 {
		l.RevokedTokens = slices.Delete(l.RevokedTokens, 0, extra)
	}
}

// EndedTokens are the tokens whose agents must stop, sorted.
func (l *TokenLedger) EndedTokens() []string {
	var ended []string
	for _, r := range l.RevokedTokens {
		if r.EndSessions {
			ended = append(ended, r.ID)
		}
	}
	slices.SortFunc(ended, strings.Compare)
	return ended
}
