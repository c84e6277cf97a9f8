package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/sdk/api"
)

// settle assigns shards until nothing waits and returns the moves and when that was.
func settle(t require.TestingT, c *Cluster, now time.Time) ([]api.ShardMove, time.Time) {
	var all []api.ShardMove
	for range 10 {
		moves, wait := c.AssignShards(roleLease, now)
		all = append(all, moves...)
		if wait.IsZero() {
			return all, now
		}
		require.True(t, wait.After(now))
		now = wait
	}
	require.Fail(t, "the shards do not come to rest")
	return nil, now
}

// taken returns the moves that took a shard from an owner.
func taken(moves []api.ShardMove) []api.ShardMove {
	return slices.DeleteFunc(slices.Clone(moves), func(m api.ShardMove) bool { return m.To != "" })
}

func counts(c *Cluster) map[string]int {
	n := map[string]int{}
	for _, s := range c.Shards {
		n[s.Owner]++
	}
	return n
}

func TestAssignShards(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		agents []string
		change func(c *Cluster)
		taken  int
		want   map[string]int // "" are those without an owner
	}{
		{"one takes all", []string{"a"}, nil, 0, map[string]int{"a": 16}},
		{"even", []string{"a", "b"}, nil, 0, map[string]int{"a": 8, "b": 8}},
		{"within one", []string{"a", "b", "c"}, nil, 0, map[string]int{"a": 6, "b": 5, "c": 5}},
		{"nobody", nil, nil, 0, map[string]int{"": 16}},
		{"a join moves the least", []string{"a", "b", "c"}, func(c *Cluster) {
			c.Join(Join{AgentID: "d", Instance: "1"}, "h", noon)
		}, 4, map[string]int{"a": 4, "b": 4, "c": 4, "d": 4}},
		{"only a lost agent's shards move", []string{"a", "b", "c"}, func(c *Cluster) { become(c, "b", api.AgentOffline) },
			5, map[string]int{"a": 8, "c": 8}},
		{"maintenance owns nothing", []string{"a", "b"}, func(c *Cluster) { become(c, "b", api.AgentMaintenance) }, 8,
			map[string]int{"a": 16}},
		{"draining owns nothing", []string{"a", "b"}, func(c *Cluster) { become(c, "b", api.AgentDraining) }, 8,
			map[string]int{"a": 16}},
		{"all lost", []string{"a", "b"}, func(c *Cluster) { become(c, "a", api.AgentOffline); become(c, "b", api.AgentOffline) },
			16, map[string]int{"": 16}},
		{"a suspect keeps its own", []string{"a", "b", "c"}, func(c *Cluster) { become(c, "b", api.AgentSuspect) }, 0,
			map[string]int{"a": 6, "b": 5, "c": 5}},
		{"a suspect gets nothing", []string{"a", "b", "c"}, func(c *Cluster) {
			become(c, "b", api.AgentSuspect)
			become(c, "c", api.AgentOffline)
		}, 5, map[string]int{"a": 11, "b": 5}},
		{"a join beside a suspect takes only what it needs in the end", []string{"a", "b"}, func(c *Cluster) {
			become(c, "b", api.AgentSuspect)
			c.Join(Join{AgentID: "c", Instance: "1"}, "h", noon)
		}, 2, map[string]int{"a": 6, "b": 8, "c": 2}},
		{"nothing is taken for a suspect", []string{"a"}, func(c *Cluster) {
			c.Join(Join{AgentID: "b", Instance: "1"}, "h", noon)
			become(c, "b", api.AgentSuspect)
			c.Join(Join{AgentID: "c", Instance: "1"}, "h", noon)
		}, 5, map[string]int{"a": 11, "c": 5}},
		{"another process does not inherit", []string{"a", "b"}, func(c *Cluster) {
			c.Join(Join{AgentID: "b", Instance: "2"}, "h", noon)
		}, 8, map[string]int{"a": 8, "b": 8}},
		{"re-attached keeps its own", []string{"a", "b"}, func(c *Cluster) {
			become(c, "b", api.AgentOffline)
			c.Join(Join{AgentID: "b", Instance: "1"}, "h2", noon)
		}, 0, map[string]int{"a": 8, "b": 8}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := clusterOf(api.Sharded, tt.agents...)
			_, now := settle(t, c, noon)
			require.Equal(t, noon, now, "the first owners wait for nobody")
			if tt.change != nil {
				tt.change(c)
			}
			moves, now := settle(t, c, now)
			require.Len(t, taken(moves), tt.taken)
			require.Equal(t, tt.want, counts(c))
			if tt.taken > 0 {
				require.Equal(t, noon.Add(roleLease), now, "what was taken waits for the old lease")
			}
			again, wait := c.AssignShards(roleLease, now)
			require.Empty(t, again)
			require.Zero(t, wait)
		})
	}
}

func TestAssignShardsOnlyWhenSharded(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.ActiveActive, "a")
	moves, wait := c.AssignShards(roleLease, noon)
	require.Empty(t, moves)
	require.Zero(t, wait)
	require.Empty(t, c.Shards)
}

// A shard on its way has no owner until the old one's lease has run out, then exactly one under a new epoch.
func TestShardHandover(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.Sharded, "a")
	c.Config.Shards = 2
	first, _ := c.AssignShards(roleLease, noon)
	require.Equal(t, []api.ShardMove{{Shard: 0, To: "a", Epoch: 2}, {Shard: 1, To: "a", Epoch: 3}}, first)

	c.Join(Join{AgentID: "b", Instance: "1"}, "h", noon)
	released, wait := c.AssignShards(roleLease, noon)
	require.Equal(t, []api.ShardMove{{Shard: 1, From: "a", Epoch: 3}}, released)
	require.Equal(t, noon.Add(roleLease), wait)
	require.Equal(t, []int{0}, c.ShardsOf("a"))
	require.Empty(t, c.ShardsOf("b"))

	early, again := c.AssignShards(roleLease, wait.Add(-1))
	require.Empty(t, early)
	require.Equal(t, wait, again)

	given, again := c.AssignShards(roleLease, wait)
	require.Equal(t, []api.ShardMove{{Shard: 1, From: "a", To: "b", Epoch: 5}}, given)
	require.Zero(t, again)
	require.Equal(t, ShardOwner{Owner: "b", Epoch: 5, Handovers: 1}, c.Shards[1])
	require.Zero(t, c.Shards[0].Handovers, "its first owner is no handover")
	require.Equal(t, []int{1}, c.ShardsOf("b"))
}

func TestShardsAreVacated(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.Sharded, "a", "b")
	c.Config.Shards = 4
	settle(t, c, noon)
	mine := c.ShardsOf("b")
	require.Len(t, mine, 2)
	require.Empty(t, c.Shards.Vacate("z", 0, noon))
	require.Empty(t, c.Shards.Vacate("", 0, noon))

	become(c, "b", api.AgentOffline)
	require.Empty(t, c.ShardsOf("b"), "whoever is offline may serve nothing")
	require.Equal(t, mine, c.Shards.Vacate("b", time.Second, noon))
	require.Empty(t, c.Shards.Vacate("b", time.Hour, noon), "once")
	moves, wait := c.AssignShards(roleLease, noon)
	require.Empty(t, moves)
	require.Equal(t, noon.Add(time.Second), wait, "the lease that remained, not a whole one")
	moves, _ = c.AssignShards(roleLease, wait)
	require.Len(t, moves, 2)

	t.Log("after a goodbye nothing waits")
	c.Join(Join{AgentID: "b", Instance: "2"}, "h", wait)
	_, now := settle(t, c, wait)
	require.Len(t, c.ShardsOf("b"), 2)
	c.Shards.Vacate("a", -time.Second, now)
	c.Apply(Transition{AgentID: "a", Instance: "1", Epoch: c.Member("a").Epoch, Left: true}, "h")
	moves, wait = c.AssignShards(roleLease, now)
	require.Len(t, moves, 2)
	require.Zero(t, wait)
	require.Equal(t, []int{0, 1, 2, 3}, c.ShardsOf("b"))
}

// Shards become free one after the other. Online members take them over, and give back its part to a member that was
// only suspect.
func TestShardsWaitEachForItsLease(t *testing.T) {
	t.Parallel()
	c := clusterOf(api.Sharded, "a", "b", "c", "d")
	c.Config.Shards = 8
	settle(t, c, noon)
	become(c, "b", api.AgentSuspect)
	become(c, "c", api.AgentOffline)
	become(c, "d", api.AgentOffline)
	c.Shards.Vacate("c", 3*time.Second, noon)
	c.Shards.Vacate("d", time.Second, noon)
	for _, second := range []time.Duration{1, 3} {
		_, wait := c.AssignShards(roleLease, noon.Add((second-1)*time.Second))
		require.Equal(t, noon.Add(second*time.Second), wait, "the first that becomes free")
	}
	moves, wait := c.AssignShards(roleLease, noon.Add(3*time.Second))
	require.Len(t, moves, 2)
	require.Zero(t, wait)
	require.Equal(t, map[string]int{"a": 6, "b": 2}, counts(c))
	moves, _ = c.AssignShards(roleLease, noon.Add(4*time.Second))
	require.Empty(t, moves, "no coming and going while it is suspect")
	become(c, "b", api.AgentOnline)
	moves, _ = settle(t, c, noon.Add(4*time.Second))
	require.Len(t, taken(moves), 2)
	require.Equal(t, map[string]int{"a": 4, "b": 4}, counts(c))
}

// At every size, a join moves at most the new member's part of the shards, and a loss only the lost member's.
func TestShardMovesAreFew(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := clusterOf(api.Sharded)
		c.Config.Shards = rapid.IntRange(1, 64).Draw(t, "shards")
		now := noon
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			before := counts(c)
			var most int
			if online := c.HealthyCount(); online == 0 || rapid.Bool().Draw(t, "join") {
				id := fmt.Sprintf("agent-%d", rapid.IntRange(0, 20).Draw(t, "agent"))
				if m := c.Member(id); m != nil && m.Status == api.AgentOnline {
					continue
				}
				c.Join(Join{AgentID: id, Instance: now.String()}, "h", now)
				most = c.Config.Shards / (online + 1) // even less than its part rounded up
			} else {
				var ids []string
				for _, m := range c.Members {
					if m.Status == api.AgentOnline {
						ids = append(ids, m.AgentID)
					}
				}
				lost := rapid.SampledFrom(ids).Draw(t, "lost")
				become(c, lost, api.AgentOffline)
				most = before[lost]
			}
			var moves []api.ShardMove
			moves, now = settle(t, c, now)
			if n := len(taken(moves)); n > most {
				t.Fatalf("%d shards moved, %d are enough", n, most)
			}
			now = now.Add(time.Second)
		}
	})
}

// One process at most holds a shard's lease at one instant; epochs grow; once nothing waits, every shard has an owner
// and the parts are equal within one.
func TestShardModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const shards = 7
		w := &world{Cluster: clusterOf(api.Sharded), now: noon, alive: map[string]string{}}
		w.Config.Shards, w.Shards = shards, make([]ShardOwner, shards)
		var leases [shards]map[process]time.Time
		var holder [shards]process
		var lastEpoch [shards]int64
		for i := range leases {
			leases[i] = map[process]time.Time{}
		}
		// Now and then the workflow learns nothing about the lease and leaves it to AssignShards.
		vacate := func(agent string, goodbye bool) {
			var longest time.Duration
			for i, s := range w.Shards {
				if s.Owner != agent {
					continue
				}
				if goodbye {
					delete(leases[i], holder[i])
				}
				longest = max(longest, leases[i][holder[i]].Sub(w.now))
			}
			if goodbye || rapid.Bool().Draw(t, "lease is known") {
				w.Shards.Vacate(agent, longest, w.now)
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			w.disturb(t, vacate)
			before := slices.Clone(w.Shards)
			moves, wait := w.AssignShards(roleLease, w.now)
			for _, m := range moves {
				if m.To == "" {
					continue
				}
				if m.Epoch <= lastEpoch[m.Shard] || w.now.Before(before[m.Shard].FreeAt) ||
					w.Member(m.To).Status != api.AgentOnline {
					t.Fatalf("%+v at %v, before: %+v", m, w.now, before[m.Shard])
				}
				lastEpoch[m.Shard], holder[m.Shard] = m.Epoch, w.process(m.To)
			}
			for _, m := range w.Members {
				for _, i := range w.ShardsOf(m.AgentID) {
					leases[i][w.process(m.AgentID)] = w.now.Add(roleLease)
				}
			}
			if again, same := w.AssignShards(roleLease, w.now); len(again) > 0 || same != wait {
				t.Fatalf("asked twice: %+v, then wait until %v, first %v", again, same, wait)
			}
			for i := range leases {
				held := 0
				for _, end := range leases[i] {
					if w.now.Before(end) {
						held++
					}
				}
				if held > 1 {
					t.Fatalf("shard %d is held %d times: %v", i, held, leases[i])
				}
			}
			if wait.IsZero() && w.HealthyCount() > 0 {
				balanced(t, w.Cluster)
			}
		}
	})
}

// balanced checks that every shard has an owner and, while no member is suspect, that the parts are equal within one.
func balanced(t *rapid.T, c *Cluster) {
	n := counts(c)
	if n[""] > 0 {
		t.Fatalf("%d shards have no owner and nothing is waited for", n[""])
	}
	least, most := len(c.Shards), 0
	for _, m := range c.Members {
		switch m.Status {
		case api.AgentSuspect:
			return
		case api.AgentOnline:
			least, most = min(least, n[m.AgentID]), max(most, n[m.AgentID])
		}
	}
	if most-least > 1 {
		t.Fatalf("unbalanced: %v", n)
	}
}
