package hub

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const someToken = "0123456789ab"

// joinWith registers an agent that shows a token, and returns its session token too.
func (b *bench) joinWith(id string, who access.Identity) (*peer, string) {
	b.t.Helper()
	in := &registerInput{Body: protocol.Register{AgentID: id, InstanceID: id + "-instance", Cluster: "c",
		AgentProfile: api.AgentProfile{MaxTasks: 1}}}
	out, err := b.registerAgent(access.With(b.t.Context(), who), in)
	require.NoError(b.t, err)
	claims, err := b.seal.openSession(out.Body.SessionToken)
	require.NoError(b.t, err)
	return &peer{b: b, claims: claims, conn: &connection{}}, out.Body.SessionToken
}

func TestARevokedTokenEndsSessions(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		token := access.Identity{Kind: api.IdentityJoin, ID: someToken, Joins: true, MaxUses: 3}
		a, _ := b.joinWith("a", token)
		other, _ := b.joinWith("b", access.Identity{Kind: api.IdentityJoin, ID: "first-join", Joins: true})
		require.Equal(t, cluster.JoinToken{ID: someToken, MaxUses: 3}, b.temporal.joins[0].Joins[0].Token)
		require.Zero(t, b.temporal.joins[1].Joins[0].Token, "what cannot be revoked is not counted")
		given := a.give(aTask("t1"))
		polls := []<-chan answered{a.poll(lists(given)), other.poll()}
		require.NoError(t, b.direct(t.Context(), contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive,
			EndedTokens: []string{someToken}}))
		got := <-polls[0]
		requireCode(t, protocol.CodeSessionRevoked, got.err)
		require.Nil(t, a.session())
		require.NotNil(t, other.session())
		requireCode(t, protocol.CodeSessionRevoked, (<-a.poll()).err)
		b.pass(time.Second)
		require.Len(t, b.reported(), 1)
		require.Equal(t, api.AttemptLost, b.reported()[0].Outcome)
		require.Positive(t, *b.reported()[0].LeaseRemaining, "the agent may go on for a while")
		require.Len(t, b.changed(), 1)
		require.Equal(t, api.AgentOffline, b.changed()[0].Status)
		require.Contains(t, b.changed()[0].Reason, "revoked")
		require.InDelta(t, 1, b.counted("mainstay_hub_sessions_ended_total"), 0)

		b.mu.Lock()
		defer b.mu.Unlock()
		_, err := b.admitLocked(protocol.Register{AgentID: "n", InstanceID: "n-instance", Cluster: "c",
			AgentProfile: api.AgentProfile{MaxTasks: 1}},
			"", someToken, &cluster.Joined{Epoch: 9}, time.Now())
		requireCode(t, protocol.CodeSessionRevoked, err) // its registration was on its way
	})
}

// A session that an agent shows when it registers again has to be its own: at the gate it then counts as this agent.
func TestRegisteringAgainShowsOnesOwnSession(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		who := access.Identity{Kind: api.IdentityJoin, ID: "first-join", Joins: true}
		_, own := b.joinWith("a", who)
		_, others := b.joinWith("b", who)
		for session, code := range map[string]string{own: "", "forged": "", others: protocol.CodeForbidden} {
			_, err := b.registerAgent(access.With(t.Context(), who), &registerInput{Session: session,
				Body: protocol.Register{AgentID: "a", InstanceID: "a-instance", Cluster: "c",
					AgentProfile: api.AgentProfile{MaxTasks: 1}}})
			if code != "" {
				requireCode(t, code, err)
				continue
			}
			require.NoError(t, err)
		}
	})
}

// TestGoingOnWithASession has agents come to a hub that does not know their sessions.
func TestGoingOnWithASession(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		kept := sessionClaims{Hub: "hub-1", Agent: "a", Cluster: "c", Instance: "a-instance", Epoch: 1,
			Token: someToken}
		first := kept
		first.Token = ""
		register := func(change func(*protocol.Register)) protocol.Register {
			reg := protocol.Register{AgentID: "a", InstanceID: "a-instance", Cluster: "c",
				AgentProfile: api.AgentProfile{MaxTasks: 1}}
			change(&reg)
			return reg
		}
		same := func(*protocol.Register) {}
		for name, c := range map[string]struct {
			ctx     context.Context
			token   string
			change  func(*protocol.Register)
			refused string // by the cluster
			code    string
		}{
			"with it":               {t.Context(), b.seal.session(kept), same, "", ""},
			"while security is off": {access.With(t.Context(), access.Local), b.seal.session(first), same, "", ""},
			"of what is not kept":   {t.Context(), b.seal.session(first), same, "", protocol.CodeUnauthorized},
			"forged": {t.Context(), sealer{key: []byte("another key, of 16")}.session(kept), same, "",
				protocol.CodeUnauthorized},
			"as another process": {t.Context(), b.seal.session(kept),
				func(r *protocol.Register) { r.InstanceID = "another-instance" }, "", protocol.CodeForbidden},
			"as another agent": {t.Context(), b.seal.session(kept),
				func(r *protocol.Register) { r.AgentID = "b" }, "", protocol.CodeForbidden},
			"in another cluster": {t.Context(), b.seal.session(kept),
				func(r *protocol.Register) { r.Cluster = "d" }, "", protocol.CodeForbidden},
			"that was ended": {t.Context(), b.seal.session(kept), same, cluster.RefusedRevoked,
				protocol.CodeSessionRevoked},
			"that said goodbye": {t.Context(), b.seal.session(kept), same, cluster.RefusedResume,
				protocol.CodeUnauthorized},
			"that a newer one fenced": {t.Context(), b.seal.session(kept), same, cluster.RefusedFenced,
				protocol.CodeFenced},
		} {
			b.temporal.mu.Lock()
			b.temporal.refuse, b.temporal.joins = c.refused, nil
			b.temporal.mu.Unlock()
			out, err := b.resumeSession(c.ctx, &resumeInput{Authorized{ID: "a", Authorization: "Bearer " + c.token},
				register(c.change)})
			if c.code != "" {
				requireCode(t, c.code, err)
				continue
			}
			require.NoError(t, err, name)
			claims, err := b.seal.openSession(out.Body.SessionToken)
			require.NoError(t, err)
			require.Equal(t, c.token, b.seal.session(claims), "%s: the same session", name)
			require.True(t, b.temporal.joins[0].Joins[0].Resume)
			require.Equal(t, claims.Token, b.temporal.joins[0].Joins[0].Token.ID)
		}
	})
}

func TestWhatARefusedTokenIsTold(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		for refused, code := range map[string]string{cluster.RefusedToken: protocol.CodeUnauthorized,
			cluster.RefusedUses: protocol.CodeForbidden} {
			b.temporal.mu.Lock()
			b.temporal.refuse = refused
			b.temporal.mu.Unlock()
			_, err := b.openSession(t.Context(), protocol.Register{AgentID: "a", InstanceID: "a-instance", Cluster: "c",
				AgentProfile: api.AgentProfile{MaxTasks: 1}}, cluster.JoinToken{ID: someToken}, false)
			requireCode(t, code, err)
		}
	})
}

// What an agent may do each second must not be used up by its older processes, or by those who claim its id for another
// cluster.
func TestOthersDoNotUseUpAnAgentsRegistrations(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a, old := b.joinWith("a", access.Identity{Kind: api.IdentityJoin, ID: someToken, Joins: true})
		require.NoError(t, b.direct(t.Context(), contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive,
			EndedTokens: []string{someToken}}))
		requireCode(t, protocol.CodeSessionRevoked, (<-a.poll()).err)
		other := b.register("b", 1)
		claimed := protocol.Register{AgentID: "b", InstanceID: "b2", Cluster: "other",
			AgentProfile: api.AgentProfile{MaxTasks: 1}}
		for range registerBurst {
			_, err := b.goodbye(t.Context(), &goodbyeInput{Died: "so it says",
				Authorized: Authorized{ID: "a", Authorization: "Bearer " + old}})
			requireCode(t, protocol.CodeSessionRevoked, err)
			_, err = b.openSession(t.Context(), claimed, cluster.JoinToken{}, false)
			requireCode(t, protocol.CodeAgentIDInUse, err)
		}
		_, err := b.openSession(t.Context(), claimed, cluster.JoinToken{}, false)
		requireCode(t, protocol.CodeRateLimited, err)
		b.register("a", 1, func(r *protocol.Register) { r.InstanceID = "a2" })
		b.register("b", 1)
		require.NotNil(t, other.session())
	})
}
