package hub

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

// rated is the health of an agent as the hub tells it.
func (b *bench) rated(agent string) fleet.Health {
	result, err := b.readHealth(b.t.Context(), contract.ReadHealthInput{Cluster: "c", AgentID: agent})
	require.NoError(b.t, err)
	require.Contains(b.t, result.Agents, agent)
	return result.Agents[agent]
}

func TestHealthOfWhatAnAgentDoes(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(a *peer)
		score float64
		level fleet.HealthLevel
	}{
		"nothing":      {func(*peer) {}, 1, fleet.HealthHealthy},
		"it completes": {func(a *peer) { _ = a.report(a.give(task("t1")), fleet.AttemptCompleted) }, 1, fleet.HealthHealthy},
		"it fails":     {func(a *peer) { _ = a.report(a.give(task("t1")), fleet.AttemptFailed) }, .9, fleet.HealthHealthy},
		"it times out": {func(a *peer) { _ = a.report(a.give(task("t1")), fleet.AttemptTimedOut) }, .75, fleet.HealthDegraded},
		"what was cancelled does not count": {func(a *peer) {
			given := a.give(task("t1"))
			a.b.cancelAttempt(a.session().attempts[attemptKey{given.TaskID, given.Attempt}])
			_ = a.report(given, fleet.AttemptCancelled)
		}, 1, fleet.HealthHealthy},
		"its host is full": {func(a *peer) {
			a.poll(func(p *protocol.Poll) { p.Metrics.DiskPercent = 100 })
			a.b.pass(0)
		}, .85, fleet.HealthDegraded},
		"it is silent": {func(a *peer) { a.b.pass(3 * fleet.DefaultTiming().HeartbeatInterval) }, .7, fleet.HealthDegraded},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				a := b.register("a", 2)
				a.poll()
				b.pass(0)
				c.do(a)
				got := b.rated("a")
				require.InDelta(t, c.score, got.Score, .0011, "%+v", got)
				require.Equal(t, c.level, got.Level)
			})
		})
	}
}

func TestHealthIsOfOneClusterAndAgent(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.register("a", 1)
		b.register("b", 1)
		for in, want := range map[contract.ReadHealthInput]int{{Cluster: "c"}: 2, {Cluster: "c", AgentID: "a"}: 1, {Cluster: "other"}: 0, {Cluster: "c", AgentID: "z"}: 0} {
			result, err := b.readHealth(t.Context(), in)
			require.NoError(t, err)
			require.Len(t, result.Agents, want, "%+v", in)
		}
	})
}
