package contract

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// names are characters that ids may have.
const names = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// randomText is a text of n characters of some.
func randomText(random *rand.Rand, n int, of string) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = of[random.IntN(len(of))]
	}
	return string(text)
}

// largeCluster has as many members as there may be. Each tells as much of itself as is accepted, in random letters, and
// was started anew so often that all replaced processes are remembered; work waits for each.
func largeCluster(t *testing.T, profile int) *cluster.Cluster {
	t.Helper()
	random, now := rand.New(rand.NewPCG(1, 2)), time.Date(2026, 11, 22, 12, 0, 0, 123456789, time.UTC)
	c := &cluster.Cluster{Config: api.ClusterConfig{Name: "c", MaxAgents: api.MaxMembers}.WithDefaults()}
	total := 0
	for i := range api.MaxMembers {
		j := cluster.Join{AgentID: fmt.Sprintf("agent-of-the-fleet-%d", i), AgentProfile: api.AgentProfile{MaxTasks: 4,
			PID: random.IntN(1 << 20), Host: randomText(random, profile, names), TaskTypes: []string{"exec"}}}
		if c.RefuseProfile(&j, &total) != "" {
			j.AgentProfile = api.AgentProfile{MaxTasks: 1}
		}
		for range 5 {
			j.Instance = fmt.Sprintf("%016x%016x", random.Uint64(), random.Uint64())
			j.StartedAt, now = now.Add(-time.Duration(random.Int64N(1e12))), now.Add(time.Duration(random.Int64N(1e9)))
			require.Empty(t, c.Join(j, "hub-1", now).Refused)
		}
		c.OpenAgentLane(j.AgentID)
	}
	return c
}

// passOn has a message read as Temporal brings it, and returns how long it is there.
func passOn(t *testing.T, message, into any) int {
	t.Helper()
	payload, err := Payloads.ToPayload(message)
	require.NoError(t, err)
	require.NoError(t, Payloads.FromPayload(payload, into))
	return len(payload.GetData())
}

func TestALargeClusterFitsIntoAMessage(t *testing.T) {
	t.Parallel()
	for _, profile := range []int{140, 400} {
		c := largeCluster(t, profile)
		require.Len(t, c.Members, api.MaxMembers)
		var events cluster.EventLog
		for i := range cluster.MaxEventsKept {
			m := &c.Members[i]
			events.Add(cluster.Event{Type: api.EventClusterCreated, Time: m.JoinedAt, EventData: api.EventData{Cluster: "c",
				AgentID: m.AgentID, Reason: m.Instance}}, cluster.MaxEventsKept)
		}
		in := ClusterInput{Config: c.Config, State: c, Events: &events}
		var back ClusterInput
		size := passOn(t, in, &back)
		t.Logf("profiles of %d bytes: %d KiB", profile, size>>10)
		require.Less(t, size, 2<<20-64<<10)
		require.Equal(t, in.State.Members, back.State.Members)
		var view ClusterView
		require.Less(t, passOn(t, ClusterView{Cluster: *c}, &view), 2<<20-64<<10)
		require.Equal(t, c.OpenLanes, view.OpenLanes)
	}
}

// hostileCluster has as many members as agents get in that choose ids of some length, the longest ids of former
// processes, profiles and notes of random characters, and random numbers, and come again and again as other processes.
// All are standbys with open lanes, and none is well.
func hostileCluster(t *testing.T, id, instance, profile int) *cluster.Cluster {
	t.Helper()
	random, now := rand.New(rand.NewPCG(3, 4)), time.Date(2026, 11, 22, 12, 0, 0, 123456789, time.UTC)
	c := &cluster.Cluster{Config: api.ClusterConfig{Name: "c", MaxAgents: api.MaxMembers,
		ReplicationMode: api.ActivePassive}.WithDefaults()}
	total, texts := 0, 0
	for range api.MaxMembers {
		j := cluster.Join{AgentID: randomText(random, id, names), Registration: random.Int64(),
			AgentProfile: api.AgentProfile{MaxTasks: 1 + random.IntN(10_000), PID: random.Int(),
				Host: randomText(random, profile, names+" !#$%()*+,./:;=?@[]^`{|}~'")}}
		if id == 63 {
			j.Token = cluster.JoinToken{ID: "t-" + randomText(random, 1, names), MaxUses: 1000}
		}
		if c.RefuseProfile(&j, &total) != "" {
			j.AgentProfile = api.AgentProfile{MaxTasks: 1}
		}
		last := randomText(random, instance, names)
		j.Instance = last
		if c.Crowded(&j, &texts) {
			continue
		}
		for n := range 5 {
			j.Instance = randomText(random, 64, names)
			if n == 4 {
				j.Instance = last
			}
			j.StartedAt = time.Unix(random.Int64N(2e11)-3e10, random.Int64N(1e9)).UTC()
			now = now.Add(time.Duration(random.Int64N(1e9)))
			if c.Join(j, "hub-1", now).Refused != "" {
				break // its token is used up
			}
		}
		if m := c.Member(j.AgentID); m != nil {
			m.Health = &cluster.MemberHealth{Level: api.HealthCritical, Score: random.Float64(),
				Why:   randomText(random, 250, names),
				Since: now.Add(time.Duration(random.Int64N(1e12)))}
			c.OpenAgentLane(j.AgentID)
		}
	}
	for i := range c.Members {
		m := &c.Members[random.IntN(i+1)]
		c.Standbys = append(c.Standbys, m.AgentID)
		c.Vanished.Lost(cluster.AgentLoss{AgentID: c.Members[i].AgentID, At: now})
	}
	return c
}

// Whatever agents choose, what their cluster hands over to its next run, answers and tells its hubs fits into a
// message.
func TestAHostileClusterFitsIntoAMessage(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ id, instance, profile int }{{63, 64, 20}, {63, 64, 120}, {63, 64, 500}, {30, 8, 200}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			c := hostileCluster(t, size.id, size.instance, size.profile)
			var events cluster.EventLog
			for i := range cluster.MaxEventsKept {
				m := &c.Members[i]
				events.Add(cluster.Event{Type: api.EventAgentSuspect, Time: m.JoinedAt, EventData: api.EventData{Cluster: "c",
					AgentID: m.AgentID, Reason: m.Health.Why}}, cluster.MaxEventsKept)
			}
			t.Logf("view of %d members: %d KiB", len(c.Members), Bytes(ClusterView{Cluster: c.View()})>>10)
			require.True(t, Fits(ClusterView{Cluster: c.View()}))
			newest := c.Members[7].FencedInstances[len(c.Members[7].FencedInstances)-1]
			in := ClusterInput{Config: c.Config, State: c, Events: &events}
			c.Shorten()
			require.Equal(t, []string{newest}, c.Members[7].FencedInstances)
			t.Logf("state: %d KiB", Bytes(in)>>10)
			packed, fits := in.pack()
			require.True(t, fits)
			var back ClusterInput
			passOn(t, packed, &back)
			require.Equal(t, in.State.Members, back.State.Members)
			in.IdleFailovers = idleFailovers(c)
			t.Logf("with failovers that wait: %d KiB", Bytes(in)>>10)
			require.True(t, Fits(in))
			for range 4 { // as if they took all room that there is
				in.IdleFailovers = append(in.IdleFailovers, idleFailovers(c)...)
			}
			_, fits = in.PackShort()
			require.True(t, fits)

			directive := Directive{Cluster: "c", Standbys: c.Standbys, Slots: map[string]int{}}
			for i := range c.Members {
				m := &c.Members[i]
				directive.Fences = append(directive.Fences, Fence{m.AgentID, m.Epoch})
				directive.Cordoned = append(directive.Cordoned, m.AgentID)
				directive.Slots[m.AgentID] = 3
			}
			var answer JoinResponse
			bytes := passOn(t, JoinResponse{Directive: &directive}, &answer)
			t.Logf("directive: %d KiB", bytes>>10)
			require.Less(t, bytes, 900<<10, "a workflow task may have four of them")
			require.Equal(t, directive, *answer.Directive)
		})
	}
}

// idleFailovers are as many as may wait, of agents that tell at length how they end.
func idleFailovers(c *cluster.Cluster) (list []FailoverInput) {
	random := rand.New(rand.NewPCG(5, 6))
	for i := range MaxIdleFailovers {
		m, reason := &c.Members[i%len(c.Members)], make([]rune, 64)
		for i := range reason {
			reason[i] = rune(0x10000 + random.IntN(0x10000)) // four bytes
		}
		list = append(list, FailoverInput{Cluster: "c", FailedAgent: m.AgentID, Epoch: random.Int64(), Hub: m.Hub,
			Trigger: api.TriggerLost, Reason: string(reason), Evidence: api.EvidenceClosed,
			NoticedAt: m.JoinedAt.Add(time.Duration(random.Int64N(1e12))), NoticedAfter: api.Duration(random.Int64())})
	}
	return list
}

// Agents that end tell how, and people say why agents are to do less: nobody ends a cluster with that.
func TestNotesOfManyMembersFitIntoAMessage(t *testing.T) {
	t.Parallel()
	random, now := rand.New(rand.NewPCG(3, 4)), time.Date(2026, 11, 22, 12, 0, 0, 123456789, time.UTC)
	text := func(n int) string { // four bytes each
		runes := make([]rune, n)
		for i := range runes {
			runes[i] = rune(0x10000 + random.IntN(0x10000))
		}
		return string(runes)
	}
	for name, c := range map[string]struct {
		members int // none: as many hostile ones as get in
		note    func(*cluster.Cluster, *cluster.Member)
	}{
		"deaths": {1000, func(c *cluster.Cluster, m *cluster.Member) {
			require.True(t, c.Apply(cluster.Transition{AgentID: m.AgentID, Instance: m.Instance, Epoch: m.Epoch,
				Status: api.AgentOffline, At: now, Reason: text(512)}, "hub-1"))
		}},
		"maintenance and less load": {api.MaxMembers, func(c *cluster.Cluster, m *cluster.Member) {
			require.NoError(t, c.SetCordon(cluster.Cordon{AgentID: m.AgentID, Status: api.AgentMaintenance, Since: now,
				Reason: text(512)}))
			_, err := c.ReduceLoad(m.AgentID, cluster.Reduce{Slots: 1, Reason: text(512), For: 24 * time.Hour}, now)
			require.NoError(t, err)
		}},
		"maintenance of hostile agents": {0, func(c *cluster.Cluster, m *cluster.Member) {
			require.NoError(t, c.SetCordon(cluster.Cordon{AgentID: m.AgentID, Status: api.AgentMaintenance, Since: now,
				Reason: text(512)}))
		}},
	} {
		state := &cluster.Cluster{Config: api.ClusterConfig{Name: "c", MaxAgents: c.members}.WithDefaults()}
		if c.members == 0 {
			state = hostileCluster(t, 63, 64, 120)
		}
		for i := range c.members {
			state.Join(cluster.Join{AgentID: fmt.Sprint("agent-", i), Instance: randomText(random, 64, names),
				AgentProfile: api.AgentProfile{MaxTasks: 4, Host: randomText(random, 60, names)}}, "hub-1", now)
		}
		for i := range state.Members {
			c.note(state, &state.Members[i])
		}
		before := state.Members[0].StatusReason
		require.True(t, Fits(ClusterView{Cluster: state.View()}), name)
		require.Equal(t, before, state.Members[0].StatusReason, "a view changes nothing")
		in := ClusterInput{Config: state.Config, State: state, Events: &cluster.EventLog{}}
		in.IdleFailovers = idleFailovers(state)
		packed, fits := in.PackShort()
		require.True(t, fits, name)
		t.Logf("%s: %d members, %d KiB", name, len(state.Members), len(packed.Payload().GetData())>>10)
	}
}

// A job may have an instance on each agent of the largest cluster.
func TestALargeJobFitsIntoAMessage(t *testing.T) {
	t.Parallel()
	random, now := rand.New(rand.NewPCG(1, 2)), time.Date(2026, 11, 22, 12, 0, 0, 123456789, time.UTC)
	j := job.Job{Name: "acme:monitor", Versions: []api.JobVersion{{Definition: &api.JobDefinition{Job: "monitor"}}}}
	for range api.MaxMembers {
		agent := fmt.Sprintf("%016x%016x", random.Uint64(), random.Uint64())
		now = now.Add(time.Duration(random.Int64N(1e9)))
		j.Instances = append(j.Instances, api.Instance{Name: agent, TaskID: "acme:monitor@" + agent + ".1",
			Version: 1, Since: now, Started: true, Health: api.InstancePassing, Attempt: 1, Changes: 1, Hub: "hub-1",
			HealthAt: now.Add(time.Second),
			Ended:    api.TaskFailed, Ends: 3, NextAt: now.Add(time.Minute),
			Why: fmt.Sprintf("it has ended after %d s, with exit code 1, and is started again in a minute", random.IntN(100))})
	}
	plain, err := json.Marshal(j)
	require.NoError(t, err)
	require.Greater(t, len(plain), mostMessage, "it is too long as it is")
	require.True(t, Fits(j))
	in := JobInput{Name: j.Name, Carried: &j}
	require.True(t, Fits(in))
	var back JobInput
	passOn(t, in, &back)
	require.Equal(t, in, back)
}

// Healing goes on when all agents of large clusters are ill, whatever they say of it and whatever their names are.
func TestACycleOfManyIllAgentsFitsIntoAMessage(t *testing.T) {
	t.Parallel()
	random, now := rand.New(rand.NewPCG(5, 6)), time.Date(2026, 11, 22, 12, 0, 0, 123456789, time.UTC)
	text := func(n, from, to int) string {
		made := make([]byte, n)
		for i := range made {
			made[i] = byte(from + random.IntN(to-from))
		}
		return string(made)
	}
	for clusters, from := range map[int]int{1: ' ', 2: 0, 9: ' '} {
		var examined Examined
		for n := range clusters {
			one := healing.HealingCase{Cluster: fmt.Sprint("c", n), Policy: api.HealingPolicy{}.WithDefaults(),
				Members: api.MaxMembers, Serving: api.MaxMembers}
			for range api.MaxMembers {
				now = now.Add(time.Duration(random.Int64N(1e9)))
				one.Agents = append(one.Agents, healing.HealingAgent{AgentID: text(63, 'a', 'z'), Status: api.AgentOnline,
					Since: now, Epoch: random.Int64N(1e6), Health: cluster.MemberHealth{Level: api.HealthCritical,
						Score: random.Float64(), Why: text(256, from, 127), Since: now.Add(-time.Hour)}})
			}
			for range 1000 {
				one.Suspects = append(one.Suspects, api.Orphan{TaskID: text(127, 'a', 'z'),
					RunID: text(36, 'a', 'z'), Since: now})
				one.Past = append(one.Past, healing.HealingPast{TargetID: text(63, 'a', 'z'), At: now})
			}
			examined.Cases = append(examined.Cases, one)
		}
		small := healing.HealingCase{Cluster: "small", Agents: examined.Cases[0].Agents[:3:3]}
		examined.Cases = append(examined.Cases, small)
		examined.Shorten()
		require.True(t, Fits(examined))
		require.Len(t, examined.Cases, clusters+1)
		require.Len(t, examined.Cases[clusters].Agents, 3, "small clusters lose nothing")
		require.Greater(t, len(examined.Cases[0].Agents), 500)
		var cycle api.HealingCycleRecord
		left := 1000
		for i := range examined.Cases {
			decisions := healing.BoundHealing(healing.DecideHealing(&examined.Cases[i], now.Add(time.Hour)), left)
			left -= healing.Recorded(decisions)
			healing.AddToCycle(&cycle, decisions)
		}
		require.True(t, Fits(cycle))
		require.Positive(t, cycle.LeftOut)
		var back api.HealingCycleRecord
		size := passOn(t, cycle, &back)
		require.Equal(t, len(cycle.Decisions), len(back.Decisions))
		t.Logf("%d clusters: %d agents each, cycle of %d KiB", clusters, len(examined.Cases[0].Agents), size>>10)
	}
}

func TestASmallClusterIsReadable(t *testing.T) {
	t.Parallel()
	in := ClusterInput{Config: api.ClusterConfig{Name: "c"}, State: &cluster.Cluster{LastEpoch: 7}}
	payload, err := Payloads.ToPayload(in)
	require.NoError(t, err)
	require.Contains(t, string(payload.GetData()), `"last_epoch":7`, "people read it in Temporal's Web UI")
	var back ClusterInput
	passOn(t, in, &back)
	require.Equal(t, in, back)
}
