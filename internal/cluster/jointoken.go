package cluster

import (
	"slices"
	"strings"
	"time"

	"mainstay.dev/sdk/api"
)

const (
	// MaxTokenUses bounds how many agents a join token with a maximum may let in.
	MaxTokenUses = 1000
	// maxUsesKept bounds the uses that a cluster counts, for all its tokens together, so that its state stays small.
	maxUsesKept = 5000
	// maxRevokedKept is how many revoked tokens a cluster remembers. Within seconds the hubs no longer accept a revoked
	// token; until then the cluster refuses it.
	maxRevokedKept = 200
)

// JoinToken has a cluster's facts about the token of a joining agent, without its secret. The zero value is a
// credential that is not stored, or none while security is off.
type JoinToken struct {
	ID string `json:"id,omitempty"`
	// MaxUses is how many agents may join with it; 0: any number.
	MaxUses int `json:"max_uses,omitempty"`
	// ExpiresAt is when it expires; zero: never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// TokenUses are the agents that joined with a token that has a maximum. An agent counts once, however often it
// registers.
type TokenUses struct {
	ID        string    `json:"id"`
	Agents    []string  `json:"agents"` // sorted
	ExpiresAt time.Time `json:"expires_at,omitzero"`

	counted, bytes int // the number of agents that bytes covers; see size
}

// size is about how long the ids are as JSON, in bytes. Ids are only ever added, so a new count means new ids.
func (u *TokenUses) size() int {
	if u.counted != len(u.Agents) {
		u.counted, u.bytes = len(u.Agents), 0
		for _, agent := range u.Agents {
			u.bytes += api.JSONSize(agent)
		}
	}
	return u.bytes
}

// RevokedToken is a token that no agent can join with any more.
type RevokedToken struct {
	ID string `json:"id"`
	// EndSessions: agents that have joined with it must stop too.
	EndSessions bool `json:"end_sessions,omitempty"`
}

// TokenLedger is a cluster's record of join tokens.
type TokenLedger struct {
	// TokenUses count the uses of tokens with a maximum; RevokedTokens are the newest revoked ones.
	TokenUses     []TokenUses    `json:"token_uses,omitempty"`
	RevokedTokens []RevokedToken `json:"revoked_tokens,omitempty"`
}

// refuseToken returns why the credential of a join is not accepted; empty when it is. An agent that resumes shows its
// session instead of its token, and may only continue that session.
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

// countUse records that an agent has joined with a token, and forgets expired tokens.
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
		bytes := u.size() + api.JSONSize(agentID)
		u.Agents = slices.Insert(u.Agents, i, agentID)
		u.counted, u.bytes = len(u.Agents), bytes
	}
}

// RevokeToken refuses further joins with a token. With endSessions its agents must stop as well: it returns the
// connected ones, which cannot resume their sessions.
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

// revoke records a revoked token; beyond the limit the oldest is dropped.
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
