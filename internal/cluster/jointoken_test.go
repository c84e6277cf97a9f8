package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestATokenLetsInSoManyAgents(t *testing.T) {
	t.Parallel()
	c := newCluster(10)
	token := JoinToken{ID: "t", MaxUses: 2, ExpiresAt: noon.Add(time.Hour)}
	join := func(agent, instance string, token JoinToken) string {
		return c.Join(Join{AgentID: agent, Instance: instance, Token: token}, "h", noon).Refused
	}
	require.Empty(t, join("a", "a1", token))
	require.Empty(t, join("a", "a1", token), "the same process")
	require.Empty(t, join("a", "a2", token), "a newer one under the same id")
	require.Equal(t, 1, c.UsesOf("t"))
	require.Empty(t, join("b", "b1", token))
	require.True(t, c.Apply(Transition{AgentID: "b", Instance: "b1", Epoch: 3, Status: api.AgentOffline, Left: true,
		At: noon}, "h"))
	require.Equal(t, RefusedUses, join("c", "c1", token), "one that has left was one")
	require.Nil(t, c.Member("c"))
	require.Empty(t, join("b", "b2", token), "and may come back")
	require.Equal(t, RefusedFenced, join("a", "a1", token))
	require.Equal(t, 2, c.UsesOf("t"))
	require.Empty(t, join("c", "c1", JoinToken{ID: "other"}), "one without a maximum")
	require.Equal(t, "other", c.Member("c").JoinToken)
	require.Len(t, c.TokenUses, 1, "is not counted")

	t.Log("uses of a token whose time is over are forgotten at the next one")
	c.Join(Join{AgentID: "d", Instance: "d1", Token: JoinToken{ID: "new", MaxUses: 1}}, "h", noon.Add(2*time.Hour))
	require.Zero(t, c.UsesOf("t"))

	t.Log("a refused agent uses nothing up")
	full := newCluster(1)
	full.Join(Join{AgentID: "a", Instance: "a1"}, "h", noon)
	require.Equal(t, RefusedFull, full.Join(Join{AgentID: "b", Instance: "b1", Token: token}, "h", noon).Refused)
	require.Zero(t, full.UsesOf("t"))

	t.Log("the counts have a bound")
	big := newCluster(10)
	for i := range maxUsesKept / MaxTokenUses {
		uses := TokenUses{ID: fmt.Sprint(i)}
		for n := range MaxTokenUses {
			uses.Agents = append(uses.Agents, fmt.Sprintf("a-%04d", n))
		}
		big.TokenUses = append(big.TokenUses, uses)
	}
	require.Equal(t, RefusedUses, big.Join(Join{AgentID: "b", Instance: "b1", Token: token}, "h", noon).Refused)
	require.Empty(t, big.Join(Join{AgentID: "a-0001", Instance: "b1", Token: JoinToken{ID: "0", MaxUses: MaxTokenUses}},
		"h", noon).Refused)
}

// TestARevokedToken has agents that joined with a token, and others, come back in every way.
func TestARevokedToken(t *testing.T) {
	t.Parallel()
	token, other := JoinToken{ID: "t", MaxUses: 5}, JoinToken{ID: "other"}
	for name, c := range map[string]struct {
		end     bool
		join    Join
		refused string
	}{
		"a new agent": {false, Join{AgentID: "n", Instance: "n1", Token: token},
			RefusedToken},
		"a new process": {false, Join{AgentID: "a", Instance: "a2", Token: token},
			RefusedToken},
		"the same process, with the token": {false, Join{AgentID: "a", Instance: "a1", Token: token},
			RefusedToken},
		"the same process, with its session": {false, Join{AgentID: "a", Instance: "a1", Token: JoinToken{ID: "t"},
			Resume: true}, ""},
		"another process, with a session": {false, Join{AgentID: "a", Instance: "a2", Token: JoinToken{ID: "t"},
			Resume: true}, RefusedResume},
		"a fenced process, with a session": {false, Join{AgentID: "a", Instance: "a0", Token: JoinToken{ID: "t"},
			Resume: true}, RefusedFenced},
		"nobody's session": {false, Join{AgentID: "x", Instance: "x1", Token: other,
			Resume: true}, RefusedResume},
		"the same process, with another token": {false, Join{AgentID: "a", Instance: "a1", Token: other}, ""},
		"ended: a new agent": {true, Join{AgentID: "n", Instance: "n1", Token: token},
			RefusedToken},
		"ended: the same process": {true, Join{AgentID: "a", Instance: "a1", Token: token},
			RefusedRevoked},
		"ended: with its session": {true, Join{AgentID: "a", Instance: "a1", Token: JoinToken{ID: "t"},
			Resume: true}, RefusedRevoked},
		"ended: the process, with a good token":  {true, Join{AgentID: "a", Instance: "a1", Token: other}, ""},
		"ended: a new process with a good token": {true, Join{AgentID: "a", Instance: "a2", Token: other}, ""},
		"ended: one that joined with another": {true, Join{AgentID: "b", Instance: "b1", Token: other, Resume: true},
			""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newCluster(10)
			cluster.Join(Join{AgentID: "a", Instance: "a0", Token: token}, "h", noon)
			cluster.Join(Join{AgentID: "a", Instance: "a1", Token: token}, "h", noon)
			cluster.Join(Join{AgentID: "b", Instance: "b1", Token: other}, "h", noon)
			ended := cluster.RevokeToken("t", c.end)
			require.Equal(t, map[bool][]string{true: {"a"}}[c.end], ended)
			require.Equal(t, map[bool][]string{true: {"t"}}[c.end], cluster.EndedTokens())
			require.Zero(t, cluster.UsesOf("t"))
			require.Equal(t, c.refused, cluster.Join(c.join, "h", noon).Refused)
			if c.refused == "" {
				require.False(t, cluster.Member(c.join.AgentID).Revoked)
			}
		})
	}
}

func TestRevokingAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(10)
	token := JoinToken{ID: "t"}
	c.Join(Join{AgentID: "a", Instance: "a1", Token: token}, "h", noon)
	require.Empty(t, c.RevokeToken("t", false))
	require.Equal(t, []string{"a"}, c.RevokeToken("t", true), "the sessions can be ended later")
	c.RevokeToken("t", false)
	require.Equal(t, []string{"t"}, c.EndedTokens(), "and stay so")

	t.Log("however many others are revoked, the session stays ended")
	for i := range maxRevokedKept {
		c.RevokeToken(fmt.Sprint(i), true)
	}
	require.Len(t, c.RevokedTokens, maxRevokedKept)
	require.NotContains(t, c.EndedTokens(), "t")
	require.Equal(t, RefusedRevoked, c.Join(Join{AgentID: "a", Instance: "a1", Token: token, Resume: true}, "h",
		noon).Refused)
}
