package hub

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// patient never takes an agent's silence for its loss.
func patient() Config {
	timing := cluster.DefaultTiming()
	timing.WarningThreshold, timing.FailureThreshold = 24*time.Hour, 48*time.Hour
	return Config{Timing: timing}
}

// keepLanes makes the cluster c anew: no lane of an agent is open.
func (b *bench) keepLanes(at time.Time) {
	b.temporal.mu.Lock()
	defer b.temporal.mu.Unlock()
	b.temporal.lanes = cluster.Cluster{}
	d := b.temporal.direct["c"]
	d.CreatedAt, d.AgentLanes, d.Version = at, 0, d.Version+1
	b.temporal.direct["c"] = d
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ownLanes.open, "c")
}

// open asks the cluster for the lane of an agent, and returns the directive that tells of it.
func (b *bench) openOwn(agent string) contract.Directive {
	b.temporal.mu.Lock()
	defer b.temporal.mu.Unlock()
	b.temporal.lanes.OpenAgentLane(agent)
	d := b.temporal.direct["c"]
	d.AgentLanes, d.Version = b.temporal.lanes.LanesOpened, d.Version+1
	b.temporal.direct["c"] = d
	return d
}

func (b *bench) listed() int {
	b.temporal.mu.Lock()
	defer b.temporal.mu.Unlock()
	return len(b.temporal.lanes.OpenLanes)
}

func TestOwnLaneIsPolledWhileItIsOpen(t *testing.T) {
	const own = "lane/c/agent/a"
	for name, test := range map[string]func(t *testing.T, b *bench){
		"not before work waits": func(t *testing.T, b *bench) {
			b.register("a", 1)
			b.pass(time.Hour)
			require.Zero(t, b.open(own))
			require.Equal(t, 1, b.open("lane/c"))
		},
		"at once when it is opened, until it was empty for a while": func(t *testing.T, b *bench) {
			b.register("a", 1)
			require.NoError(t, b.direct(t.Context(), b.openOwn("a")))
			b.pass(0)
			require.Equal(t, 1, b.open(own))
			b.pass(ownLaneIdle + ownLanesTick)
			require.Zero(t, b.open(own))
			require.Zero(t, b.listed())
			require.Equal(t, []string{own}, b.temporal.released)
			require.NoError(t, b.direct(t.Context(), b.openOwn("a")))
			b.pass(0)
			require.Equal(t, 1, b.open(own), "it is opened again")
		},
		"opened while the agent was away": func(t *testing.T, b *bench) {
			b.openOwn("a")
			b.register("a", 1)
			b.pass(0)
			require.Equal(t, 1, b.open(own))
		},
		"opened while the agent was away and its hub was not": func(t *testing.T, b *bench) {
			b.register("b", 1)
			require.NoError(t, b.direct(t.Context(), b.openOwn("a")))
			b.pass(time.Hour)
			require.Equal(t, 1, b.listed(), "nobody has found it empty")
			b.register("a", 1)
			require.Equal(t, 1, b.open(own))
		},
		"after a question that failed": func(t *testing.T, b *bench) {
			b.register("a", 1)
			b.pass(0)
			b.temporal.mu.Lock()
			b.temporal.unasked = 3
			b.temporal.mu.Unlock()
			require.NoError(t, b.direct(t.Context(), b.openOwn("a")))
			b.pass(4 * ownLanesRetry)
			require.Equal(t, 1, b.open(own))
		},
		"after a directive that was lost": func(t *testing.T, b *bench) {
			b.register("a", 1)
			b.openOwn("a")
			b.pass(ownLanesOld + ownLanesTick)
			require.Equal(t, 1, b.open(own))
		},
		"longer when work came meanwhile": func(t *testing.T, b *bench) {
			b.register("a", 1)
			require.NoError(t, b.direct(t.Context(), b.openOwn("a")))
			b.pass(ownLaneIdle - time.Second)
			b.openOwn("a") // a delivery is on its way: the cluster knows, the hub does not
			b.pass(ownLanesTick + time.Second)
			require.Equal(t, 1, b.open(own))
			require.Equal(t, 1, b.listed())
			b.pass(ownLaneIdle)
			require.Zero(t, b.listed())
		},
		"never closed while the agent is busy": func(t *testing.T, b *bench) {
			a := b.register("a", 1)
			require.NoError(t, b.direct(t.Context(), b.openOwn("a")))
			b.pass(0)
			a.poll()
			b.queue(own, aTask("long"))
			b.pass(0)
			s := a.session()
			b.mu.Lock()
			s.work.attempts[attemptKey{"long", 1}].accepted = true
			b.mu.Unlock()
			b.pass(time.Hour)
			require.Equal(t, 1, b.listed(), "what waits behind the work is not seen")
			b.settled(a.claims, attemptKey{"long", 1}, api.AttemptCompleted)
			b.pass(0)
			require.Equal(t, 1, b.open(own))
		},
		"of a cluster that was made anew": func(t *testing.T, b *bench) {
			b.register("a", 1)
			for range 3 {
				require.NoError(t, b.direct(t.Context(), b.openOwn("b")))
				b.pass(0)
				b.temporal.lanes.CloseAgentLanes(slices.Clone(b.temporal.lanes.OpenLanes))
			}
			b.pass(time.Second)
			b.keepLanes(time.Now())
			require.NoError(t, b.direct(t.Context(), b.openOwn("a")))
			b.pass(0)
			require.Equal(t, 1, b.open(own))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, patient(), func(t *testing.T, b *bench) {
				b.keepLanes(time.Now())
				b.start(b.ownLanes)
				test(t, b)
			})
		})
	}
}
