package hub

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func TestLanesOf(t *testing.T) {
	t.Parallel()
	const own, common, gpu = "lane/c/agent/a", "lane/c", "lane/c/cap/gpu"
	owners := []cluster.ShardOwner{{Owner: "a", Epoch: 6}, {Owner: "b", Epoch: 6}, {Owner: "a", Epoch: 5}, {}}
	fit := func(taskType string) task.Fit {
		needs := api.LaneNeeds{Type: taskType}
		return task.Fit{Lane: task.LaneFor(&needs), LaneNeeds: needs}
	}
	for name, c := range map[string]struct {
		directive contract.Directive
		wants     []string
	}{
		"no directive": {contract.Directive{}, []string{own}},
		"all serve":    {contract.Directive{Mode: api.ActiveActive}, []string{own, common}},
		"with its capability": {contract.Directive{Mode: api.ActiveActive,
			CapabilitySets: [][]string{{"gpu"}, {"gpu", "tpu"}}}, []string{own, common, gpu}},
		"types that it handles": {contract.Directive{Mode: api.ActiveActive, ServingTypes: cluster.TypeSet{List: []string{"x"}},
			Fits: []task.Fit{fit("x"), fit("y")}}, []string{own, common, "lane/c/type/x"}},
		"types that it does not": {contract.Directive{Mode: api.ActiveActive,
			ServingTypes: cluster.TypeSet{List: []string{"x", "y"}}}, []string{own}},
		"any type, but it does not": {contract.Directive{Mode: api.ActiveActive,
			ServingTypes: cluster.TypeSet{Any: true}}, []string{own}},
		"a leader serves all": {contract.Directive{Mode: api.ActivePassive, Leader: "a", LeaderEpoch: 6,
			ServingTypes: cluster.TypeSet{Any: true}}, []string{own, common}},
		"the leader": {contract.Directive{Mode: api.ActivePassive, Leader: "a", LeaderEpoch: 6,
			CapabilitySets: [][]string{{"gpu"}}}, []string{own, common, gpu}},
		"a standby": {contract.Directive{Mode: api.ActivePassive, Leader: "b", LeaderEpoch: 6,
			Standbys: []string{"a"}}, []string{own}},
		"its predecessor's lead": {contract.Directive{Mode: api.ActivePassive, Leader: "a", LeaderEpoch: 5},
			[]string{own}},
		"owner of some shards": {contract.Directive{Mode: api.Sharded, Shards: owners},
			[]string{own, "lane/c/shard/0"}},
		"shards in another mode": {contract.Directive{Mode: api.ActiveActive, Shards: owners},
			[]string{own, common}},
		"leader in a sharded mode": {contract.Directive{Mode: api.Sharded, Leader: "a", LeaderEpoch: 6},
			[]string{own}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &session{agent: "a", cluster: "c", epoch: 5, candidate: task.Candidate{Capabilities: []string{"gpu"}}}
			s.registration.TaskTypes = []string{"x"}
			require.Equal(t, c.wants, lanesOf(s, c.directive, true))
		})
	}
}

// TestEvacuatedLeaderHasReadIt has a failover by hand take the leadership off an agent: the next leader is elected at
// once, so the hub answers only when the agent no longer acts as the leader.
func TestEvacuatedLeaderHasReadIt(t *testing.T) {
	answered := func(sequence int64) func(*protocol.Poll) {
		return func(p *protocol.Poll) { p.Answered = &sequence }
	}
	for name, tt := range map[string]struct {
		after   func(b *bench, a *peer) // it was told
		stopped bool                    // the evacuation succeeds
		role    api.Role                // that it is told at the end; empty: none
	}{
		"it reads it":            {func(_ *bench, a *peer) { a.poll(answered(2)) }, true, ""},
		"its answer is lost":     {func(_ *bench, a *peer) { a.poll(answered(1)) }, false, api.RoleLeader},
		"it is gone":             {func(b *bench, a *peer) { a.hangUp(); b.pass(time.Minute) }, false, ""},
		"it does not poll again": {func(*bench, *peer) {}, false, api.RoleLeader},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				b.temporal.direct["c"] = contract.Directive{Cluster: "c", Version: 1, Mode: api.ActivePassive, Leader: "a",
					LeaderEpoch: 10, Standbys: []string{"b"}}
				a := b.register("a", 2)
				require.Equal(t, api.RoleLeader, (<-a.poll()).Commands[0].Role)
				s, moving, err := b.activities.beginEvacuation(contract.EvacuateInput{AgentID: "a",
					Instance: a.claims.Instance, Epoch: a.claims.Epoch, Roles: true})
				require.NoError(t, err)
				done, err := b.activities.evacuated(s, true, moving)
				require.NoError(t, err)
				require.False(t, done, "it has not read yet that it does not lead")
				require.Equal(t, api.RoleMember, (<-a.poll()).Commands[0].Role)
				tt.after(b, a)
				b.pass(0)
				done, err = b.activities.evacuated(s, true, moving)
				require.Equal(t, tt.stopped, done && err == nil)
				b.activities.endEvacuation(s, true, done)
				drained, err := b.activities.evacuated(s, false, moving)
				require.True(t, drained && err == nil, "to a drain it matters only that it has no work")
				if tt.role != "" {
					commands := (<-a.poll()).Commands
					require.Equal(t, tt.role, commands[len(commands)-1].Role, "it still leads")
				}
			})
		})
	}
}

func TestNewerDirectiveMovesLanes(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		lead := func(version int64, leader string, epoch int64) contract.Directive {
			return contract.Directive{Cluster: "c", Version: version, Mode: api.ActivePassive, Leader: leader,
				LeaderEpoch: epoch, Standbys: []string{"a", "b"}}
		}
		b.temporal.direct["c"] = lead(1, "a", 10)
		a, other := b.register("a", 2), b.register("b", 2)
		got := <-a.poll()
		require.Equal(t, []protocol.Command{{Type: protocol.CommandRole, Role: api.RoleLeader, Leader: "a",
			Epoch: 10}}, got.Commands)
		got = <-other.poll()
		require.Equal(t, api.RoleStandby, got.Commands[0].Role)
		require.Equal(t, 2, b.open("lane/c"))

		require.NoError(t, b.direct(t.Context(), lead(3, "b", 11)))
		b.pass(0)
		require.Equal(t, api.RoleStandby, (<-a.poll()).Commands[0].Role)
		require.Equal(t, api.RoleLeader, (<-other.poll()).Commands[0].Role)
		require.Contains(t, b.lanes["lane/c"].sessions, other.session())
		require.Len(t, b.lanes["lane/c"].sessions, 1)

		require.NoError(t, b.direct(t.Context(), lead(2, "a", 10)))
		b.pass(0)
		require.Contains(t, b.lanes["lane/c"].sessions, other.session(), "a directive that comes late changes nothing")
		require.Empty(t, (<-other.poll()).Commands)
	})
}

// What a leader was assigned and no answer has carried does not begin after it has ceased to lead.
func TestLostRoleReturnsWhatWasNotDelivered(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		lead := func(version int64, leader string) contract.Directive {
			return contract.Directive{Cluster: "c", Version: version, Mode: api.ActivePassive, Leader: leader,
				LeaderEpoch: 9 + version, Standbys: []string{"a", "b"}}
		}
		b.temporal.direct["c"] = lead(1, "a")
		a := b.register("a", 2)
		b.queue("lane/c", aTask("led"))
		b.queue("lane/c/agent/a", aTask("its own"))
		require.Len(t, a.session().work.outbox, 2)

		require.NoError(t, b.direct(t.Context(), lead(2, "b")))
		b.pass(0)
		require.Len(t, b.reported(), 1)
		require.Equal(t, "led/1", b.reported()[0].token)
		require.Equal(t, api.AttemptReturned, b.reported()[0].Outcome)
		require.Equal(t, "the agent does not serve the lane any more", b.reported()[0].Reason)
		got := <-a.poll()
		require.Len(t, got.Assignments, 1)
		require.Equal(t, "its own", got.Assignments[0].TaskID)
	})
}

func TestFenceEndsOlderSessions(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a, other := b.register("a", 1), b.register("b", 1)
		given := a.give(aTask("t1"))
		polls := []<-chan answered{a.poll(lists(given)), other.poll()}
		require.NoError(t, b.direct(t.Context(), contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive,
			Fences: []contract.Fence{{AgentID: "a", MinEpoch: 2}, {AgentID: "b", MinEpoch: 1}}}))
		got := <-polls[0]
		requireCode(t, protocol.CodeFenced, got.err)
		require.Nil(t, a.session())
		require.NotNil(t, other.session(), "its epoch is new enough")
		b.pass(0)
		require.Len(t, b.reported(), 1)
		require.Equal(t, api.AttemptLost, b.reported()[0].Outcome)
		require.Positive(t, *b.reported()[0].LeaseRemaining, "the old process may go on for a while")
		require.Empty(t, b.changed(), "the newer process is there: the cluster must not count the agent as lost")
	})
}

// A process that a newer one has replaced while its own registration was on its way gets no session.
func TestReplacedWhileRegistering(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		b.register("a", 1)
		older := protocol.Register{AgentID: "b", InstanceID: "older", Cluster: "c",
			AgentProfile: api.AgentProfile{MaxTasks: 1}}
		newer := contract.Directive{Cluster: "c", Version: 9, Fences: []contract.Fence{{AgentID: "b", MinEpoch: 8}}}
		require.NoError(t, b.direct(t.Context(), newer))
		b.mu.Lock()
		defer b.mu.Unlock()
		_, err := b.admitLocked(older, "", "", &cluster.Joined{Epoch: 7}, time.Now())
		require.Error(t, err)
		require.Nil(t, b.sessions["b"])
		_, err = b.admitLocked(older, "", "", &cluster.Joined{Epoch: 8}, time.Now())
		require.NoError(t, err)
	})
}

func TestHoldOfARoleHolder(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		s := b.register("a", 1).session()
		for name, c := range map[string]struct {
			directive contract.Directive
			want      time.Duration
		}{
			"every member serves": {contract.Directive{Mode: api.ActiveActive,
				ElectionInterval: api.Duration(time.Second)}, 5 * time.Second},
			"a third of the lease": {contract.Directive{Mode: api.ActivePassive,
				RoleLease: api.Duration(9 * time.Second)}, 3 * time.Second},
			"the election interval": {contract.Directive{Mode: api.ActivePassive,
				RoleLease:        api.Duration(9 * time.Second),
				ElectionInterval: api.Duration(time.Second)}, time.Second},
			"more than a third of the lease": {contract.Directive{Mode: api.ActivePassive,
				RoleLease:        api.Duration(9 * time.Second),
				ElectionInterval: api.Duration(4 * time.Second)}, 4 * time.Second},
			"of a shard owner": {contract.Directive{Mode: api.Sharded,
				RoleLease:        api.Duration(9 * time.Second),
				ElectionInterval: api.Duration(2 * time.Second)}, 2 * time.Second},
		} {
			b.mu.Lock()
			b.directives["c"] = c.directive
			require.Equal(t, c.want, b.holdTimeLocked(s), name)
			b.mu.Unlock()
		}
	})
}

// A proof of death ends the session at once, and nothing waits for its lease.
func TestProofOfDeath(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 1)
		given := a.give(aTask("t1", safety(api.Fenced)))
		answer := a.poll(lists(given))
		require.NoError(t, b.direct(t.Context(), contract.Directive{Cluster: "c", Version: 2, Mode: api.ActiveActive,
			Deaths: cluster.Deaths{{AgentID: "a", Instance: "a-instance", Reason: "proof of death by ops: no power"}}}))
		b.pass(0)
		requireCode(t, protocol.CodeUnknownSession, (<-answer).err)
		require.Equal(t, "proof of death by ops: no power", b.reported()[0].Reason)
		require.Zero(t, *b.reported()[0].LeaseRemaining)
		require.Equal(t, api.EvidenceProof, b.changed()[0].Evidence)
		require.Zero(t, *b.changed()[0].LeaseRemaining)

		b.temporal.epochs["a"] = cluster.Joined{AgentID: "a", Epoch: 1, Replaced: "a-instance", GivenUp: true,
			Refuted: "proof of death by ops: no power"}
		b.register("a", 1)
		require.Equal(t, 1.0, b.counted("mainstay_hub_false_proofs_total"), "it lives")
	})
}

// A leader that stops gives its role up as soon as it has read so, whatever it still runs; fenced work ends first.
func TestAStoppingLeaderGivesItsRoleUp(t *testing.T) {
	for name, tt := range map[string]struct {
		safety api.RetrySafety
		after  time.Duration // it began to stop
	}{
		"a handler that needs 20 s":   {api.Idempotent, 500 * time.Millisecond},
		"one that must not run twice": {api.AtMostOnce, 500 * time.Millisecond},
		"fenced work":                 {api.Fenced, 21 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, b *bench) {
				b.temporal.direct["c"] = contract.Directive{Cluster: "c", Version: 1, Mode: api.ActivePassive, Leader: "a",
					LeaderEpoch: 10, Standbys: []string{"b"}}
				a := b.register("a", 2)
				<-a.poll()
				given := a.give(aTask("t", safety(tt.safety)))
				began := time.Now()
				stopping := func(p *protocol.Poll) { p.Stopping = true }
				require.Equal(t, api.RoleMember, (<-a.poll(lists(given), stopping)).Commands[0].Role)
				b.pass(100 * time.Millisecond)
				require.Empty(t, b.changed(), "it has not read yet that it does not lead")
				for time.Since(began) < 20*time.Second {
					a.poll(lists(given), stopping)
					b.pass(time.Second / 2)
					require.Equal(t, time.Since(began) > tt.after, len(b.changed()) > 0, time.Since(began))
				}
				require.NoError(t, a.report(given, api.AttemptCompleted))
				a.poll(stopping)
				b.pass(time.Second)
				require.Len(t, b.changed(), 1)
				told := b.changed()[0]
				require.Equal(t, api.AgentStopping, told.Status)
				require.Zero(t, *told.LeaseRemaining)
			})
		})
	}
}
