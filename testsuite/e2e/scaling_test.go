package e2e

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/testsuite/slow"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// yard is a spawner whose agents run in the test's own process, and hold work for a bench.
type yard struct {
	name  string
	bench *bench

	mu      sync.Mutex
	agents  map[string]*spawnedAgent
	starts  []string
	stops   []string // ids that were asked to stop
	notices chan api.SpawnEnd
	stillAt error // what Spawn answers instead
	mute    bool  // agents are started that never join
}

type spawnedAgent struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// newYard is a spawner that is not there yet; open starts it.
func (b *bench) newYard(t *testing.T) *yard {
	t.Helper()
	y := &yard{name: plane.UniqueID("yard"), bench: b, agents: map[string]*spawnedAgent{}, notices: make(chan api.SpawnEnd)}
	t.Cleanup(func() {
		for _, id := range y.running() {
			_ = y.Terminate(context.Background(), id, false)
		}
	})
	return y
}

func (y *yard) open(t *testing.T) {
	t.Helper()
	host, err := spawner.Start(t.Context(), spawner.HostOptions{Name: y.name, Client: plane.Temporal(t),
		Namespace: "default", Spawner: y})
	require.NoError(t, err)
	t.Cleanup(host.Stop)
}

func (y *yard) Platform() api.Platform { return "yard" }

func (y *yard) Spawn(_ context.Context, spec cluster.SpawnSpec) (cluster.Spawned, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.stillAt != nil {
		return cluster.Spawned{}, y.stillAt
	}
	spawned := cluster.Spawned{ID: spec.ID, Cluster: spec.Cluster, Spawner: y.name, Platform: "yard",
		Handle: "h-" + spec.ID, StartedAt: time.Now()}
	if y.agents[spec.ID] != nil {
		return spawned, nil
	}
	y.starts = append(y.starts, spec.ID)
	ctx, cancel := context.WithCancel(context.Background())
	s := &spawnedAgent{cancel: cancel, done: make(chan struct{})}
	y.agents[spec.ID] = s
	if y.mute {
		close(s.done)
		return spawned, nil
	}
	a,
		err := agent.New(agent.Options{HubURLs: []string{y.bench.node.URL}, Cluster: spec.Cluster, ID: spec.ID,
		Slots: max(1, spec.Slots), Logger: slog.New(slog.DiscardHandler),
		Metadata: map[string]string{api.MetadataSpawner: y.name, api.MetadataSpawnID: spec.ID}})
	if err != nil {
		return cluster.Spawned{}, err
	}
	a.Handle("hold", y.bench.hold(spec.ID))
	go func() { defer close(s.done); _ = a.Run(ctx) }()
	return spawned, nil
}

func (y *yard) Terminate(_ context.Context, id string, _ bool) error {
	y.mu.Lock()
	s := y.agents[id]
	delete(y.agents, id)
	y.stops = append(y.stops, id)
	y.mu.Unlock()
	if s != nil {
		s.cancel()
		<-s.done
	}
	return nil
}

func (y *yard) Watch(ctx context.Context, ended func(api.SpawnEnd)) {
	for {
		select {
		case <-ctx.Done():
			return
		case end := <-y.notices:
			ended(end)
		}
	}
}

func (y *yard) List(context.Context) ([]cluster.Spawned, error) { return nil, nil }

func (y *yard) running() []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var ids []string
	for id := range y.agents {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (y *yard) set(change func(*yard)) {
	y.mu.Lock()
	defer y.mu.Unlock()
	change(y)
}

// scaling are quick rules, for the yard only.
func (y *yard) scaling(mode api.ScalingMode) map[string]any {
	return map[string]any{
		"mode":       mode,
		"scale_up":   map[string]any{"queue_threshold": 1, "cpu_threshold": 100, "cooldown": "1s", "increment": 2},
		"scale_down": map[string]any{"queue_threshold": 1, "idle_timeout": "1s", "cooldown": "1s", "decrement": 5},
		"spawn": map[string]any{"spawner": y.name, "join_timeout": "5s", "drain_timeout": "20s",
			"backoff": map[string]any{"strategy": "constant", "delay": "1h", "max_delay": "1h"}},
	}
}

func (b *bench) patch(t *testing.T, patch map[string]any) {
	t.Helper()
	status, p := call(t, http.MethodPatch, b.node.URL+"/api/v1/agents/clusters/"+b.cluster, patch, nil)
	require.Equal(t, http.StatusOK, status, "%+v", p)
}

// sweep looks at all clusters once, as the schedule does.
func sweep(t *testing.T) {
	t.Helper()
	c := plane.Temporal(t)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: plane.UniqueID("sweep"),
		TaskQueue: contract.WorkerQueue}, contract.ScalingSweepWorkflow)
	require.NoError(t, err)
	var result contract.SweepResult
	require.NoError(t, run.Get(t.Context(), &result))
}

func (b *bench) scalingStatus(t *testing.T) api.ScalingStatus {
	t.Helper()
	var s api.ScalingStatus
	status, p := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/scaling", nil, &s)
	require.Equal(t, http.StatusOK, status, "%+v", p)
	return s
}

// scaled waits until an action has ended.
func (b *bench) scaled(t *testing.T, number string) api.ScalingRecord {
	t.Helper()
	var record api.ScalingRecord
	require.Eventually(t, func() bool {
		record = api.ScalingRecord{}
		status, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/scalings/"+b.cluster+":"+number, nil, &record)
		return status == http.StatusOK && record.CompletedAt != nil
	}, patience, 50*time.Millisecond, "action %s", number)
	return record
}

func TestTheFleetFollowsItsQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{MaxAgents: 3})
	y := b.newYard(t)
	y.open(t)
	var tasks []string
	for range 6 {
		tasks = append(tasks, b.submit(t, nil))
	}
	b.waitDepth(t, "default", 6)
	b.patch(t, map[string]any{"scaling": y.scaling(api.ScalingAuto)})

	t.Log("two at a time, and never more than max")
	require.Eventually(t, func() bool { sweep(t); return len(y.running()) == 3 }, patience, 200*time.Millisecond)
	first := b.scaled(t, "1")
	require.Equal(t, api.ScalingSucceeded, first.Status, "%+v", first)
	require.Equal(t, api.RuleQueue, first.Rule)
	require.Equal(t, "6 tasks wait, more than 1", first.Reason)
	require.Equal(t, y.name, first.Spawner)
	require.Len(t, first.Agents, 2)
	for _, a := range first.Agents {
		require.Equal(t, api.ScaledOnline, a.Status)
		require.Equal(t, "h-"+a.AgentID, a.Handle)
	}
	require.Len(t, b.scaled(t, "2").Agents, 1)
	require.Eventually(t, func() bool { return b.begunCount() == 3 }, patience, 20*time.Millisecond, "each works")
	sweep(t)
	require.Len(t, y.running(), 3)
	var status api.ScalingStatus
	require.Eventually(t, func() bool {
		status = b.scalingStatus(t)
		return status.Decision != nil &&
			status.Decision.Blocked
	}, patience, 100*time.Millisecond)
	require.Contains(t, status.Decision.Reason, "the cluster has its max_agents of 3")
	require.Equal(t, []int{3, 3, 3}, []int{status.Current, status.Spawned, status.Target})

	t.Log("with nothing to do they are drained and stopped")
	b.finish.Store(true)
	for _, task := range tasks {
		require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, task, "20s").Status)
	}
	require.Eventually(t, func() bool { sweep(t); return len(y.running()) == 0 }, patience, 200*time.Millisecond)
	down := b.scaled(t, "3")
	require.Equal(t, api.ScaleDown, down.Change)
	require.Equal(t, api.RuleIdle, down.Rule)
	require.Equal(t, api.ScalingSucceeded, down.Status, "%+v", down)
	for _, a := range down.Agents {
		require.Equal(t, api.ScaledStopped, a.Status)
	}
	drain := b.drained(t, down.Drain, ended)
	require.Equal(t, api.DrainCompleted, drain.Status)
	require.Eventually(t, func() bool { return len(b.view(t).Members) == 0 && len(b.view(t).Cordons) == 0 },
		patience, 50*time.Millisecond, "they are forgotten")
	for _, task := range tasks {
		require.Len(t, b.begins(task), 1, "no attempt was run twice")
		require.Len(t, getTask(t, b.node.URL, task, "").Attempts, 1)
	}
	y.set(func(y *yard) { require.ElementsMatch(t, y.starts, y.stops, "each was started once and stopped once") })
}

func TestTooFewAgentsAreMadeUpForAtOnce(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	b := newBench(t, api.ClusterConfig{MinAgents: 2, MaxAgents: 4})
	y := b.newYard(t)
	b.patch(t, map[string]any{"scaling": y.scaling(api.ScalingAuto)})

	t.Log("without a spawner it is blocked, says why, and waits")
	failed := b.scaled(t, "1")
	require.Equal(t, api.ScalingFailed, failed.Status)
	require.Equal(t, "spawner "+y.name+" does not answer", failed.Error)
	var status api.ScalingStatus
	require.Eventually(t, func() bool { status = b.scalingStatus(t); return status.Blocked != nil }, patience,
		50*time.Millisecond)
	require.Equal(t, failed.Error, status.Blocked.Reason)
	require.Equal(t, 1, status.Blocked.Failures)
	require.WithinDuration(t, time.Now().Add(time.Hour), status.Blocked.NextAt, 5*time.Minute)
	require.NotNil(t, status.Decision)
	require.Contains(t, status.Decision.Reason, "min_agents is 2; blocked: spawner "+y.name)

	t.Log("it goes on at once when the spawner comes up")
	y.open(t)
	require.Eventually(t, func() bool { return b.view(t).ServingCount() == 2 }, patience, 20*time.Millisecond)
	require.Equal(t, api.ScalingSucceeded, b.scaled(t, "2").Status)
	require.Nil(t, b.scalingStatus(t).Blocked)

	t.Log("an agent that is lost is replaced without a sweep")
	lost := y.running()[0]
	require.NoError(t, y.Terminate(t.Context(), lost, false))
	require.Eventually(t, func() bool { return b.view(t).ServingCount() == 2 && len(y.running()) == 2 }, patience,
		20*time.Millisecond)
	replaced := b.scaled(t, "3")
	require.Equal(t, api.RuleMinimum, replaced.Rule)
	require.NotContains(t, y.running(), lost)
}

// An agent whose platform ends it soon gets no new work, finishes what it has, and is replaced before it is gone.
func TestAnAgentIsDrainedAtANotice(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{MinAgents: 1, MaxAgents: 4})
	y := b.newYard(t)
	y.open(t)
	b.patch(t, map[string]any{"scaling": y.scaling(api.ScalingAuto)})
	require.Eventually(t, func() bool { return b.view(t).ServingCount() == 1 }, patience, 20*time.Millisecond)
	task := b.submit(t, nil)
	ending := b.waitBegins(t, task, 1)[0].agent
	y.notices <- api.SpawnEnd{AgentID: ending, Cluster: b.cluster, At: time.Now().Add(5 * time.Minute),
		Reason: "its platform takes it back", Notice: true}
	require.Eventually(t, func() bool {
		view := b.view(t)
		m := view.Member(ending)
		return m != nil && m.Status == api.AgentDraining && view.ServingCount() == 1
	}, patience, 20*time.Millisecond, "another serves already")
	var list struct{ Drains []api.DrainRecord }
	require.Eventually(t, func() bool {
		status, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/drains?cluster="+b.cluster, nil, &list)
		return status == http.StatusOK && len(list.Drains) == 1
	}, patience, 50*time.Millisecond)
	require.Contains(t, list.Drains[0].Reason, "its platform takes it back at ")
	require.Equal(t, []string{ending}, []string{list.Drains[0].Agents[0].AgentID})
}

func TestAnAgentThatNeverJoinsIsStopped(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	y := b.newYard(t)
	y.mute = true
	y.open(t)
	b.patch(t, map[string]any{"desired_agents": 1, "scaling": y.scaling(api.ScalingManual)})
	record := b.scaled(t, "1")
	require.Equal(t, api.ScalingFailed, record.Status)
	require.Equal(t, "it did not come online within 5s of its start", record.Agents[0].Error)
	require.Empty(t, y.running(), "it was stopped")
	y.set(func(y *yard) { require.Equal(t, y.starts, y.stops) })

	t.Log("a spawner that refuses is not asked again for the same agent")
	y.set(func(y *yard) { y.stillAt = errors.Join(spawner.ErrRefused, errors.New("no room")) })
	status, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/scaling",
		map[string]any{"desired": 2}, nil)
	require.Equal(t, http.StatusOK, status, "%+v", p)
	record = b.scaled(t, "2")
	require.Contains(t, record.Error, "no room")
	require.Len(t, record.Agents, 2)
}

func TestScalingByHand(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	y := b.newYard(t)
	y.open(t)
	settings := y.scaling(api.ScalingOff)
	b.patch(t, map[string]any{"scaling": settings})
	scale := func(body map[string]any) api.ScalingStatus {
		var s api.ScalingStatus
		status, p := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/scaling", body, &s)
		require.Equal(t, http.StatusOK, status, "%+v", p)
		return s
	}
	s := scale(map[string]any{"desired": 3})
	require.Equal(t, api.ScalingManual, s.Mode)
	require.Equal(t, 3, s.Target)
	require.Eventually(t, func() bool { return b.view(t).ServingCount() == 3 }, patience, 20*time.Millisecond)
	require.Equal(t, api.ScalingSucceeded, b.scaled(t, "1").Status)

	t.Log("who has work goes last, and finishes it first")
	task := b.submit(t, nil)
	busy := b.waitBegins(t, task, 1)[0].agent
	require.Eventually(t, func() bool { // the registry shows it
		var a api.Agent
		status, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/"+busy, nil, &a)
		return status == http.StatusOK && a.Running != nil && *a.Running == 1
	}, patience, 50*time.Millisecond)
	scale(map[string]any{"desired": 1})
	require.Eventually(t, func() bool { return len(y.running()) == 1 }, patience, 20*time.Millisecond)
	require.Equal(t, []string{busy}, y.running())
	scale(map[string]any{"desired": 0})
	require.Eventually(t, func() bool { return b.view(t).Member(busy).Status == api.AgentDraining }, patience,
		20*time.Millisecond)
	require.Equal(t, []string{busy}, y.running())
	b.finish.Store(true)
	require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, task, "20s").Status)
	require.Eventually(t, func() bool { return len(y.running()) == 0 }, patience, 20*time.Millisecond)
	require.Len(t, b.begins(task), 1)

	t.Log("bad input is refused")
	for _, body := range []map[string]any{{}, {"desired": -1}, {"min": 5, "max": 2}, {"wanted": 3}} {
		status, _ := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/scaling", body, nil)
		require.Equal(t, http.StatusUnprocessableEntity, status, "%v", body)
	}
	for path, want := range map[string]int{"clusters/nobody/scaling": http.StatusNotFound, "scalings/" + b.cluster +
		":99": http.StatusNotFound, "scalings/x": http.StatusNotFound,
		"scalings?cluster=" + b.cluster: http.StatusOK} {
		status, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/"+path, nil, nil)
		require.Equal(t, want, status, path)
	}
}

// TestAgentsOfFormerSettingsAreReplaced changes what agents are started with: all are replaced, and at most one is
// missing at any time.
func TestAgentsOfFormerSettingsAreReplaced(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	b := newBench(t, api.ClusterConfig{MinAgents: 3, MaxAgents: 4})
	y := b.newYard(t)
	y.open(t)
	settings := y.scaling(api.ScalingAuto)
	settings["rollout"] = map[string]any{"healthy_time": "1s", "deadline": "2m"}
	b.patch(t, map[string]any{"scaling": settings})
	require.Eventually(t, func() bool { return b.view(t).ServingCount() == 3 }, patience, 20*time.Millisecond)
	former := y.running()

	settings["spawn"].(map[string]any)["slots"] = 3
	b.patch(t, map[string]any{"scaling": settings})
	least := 3
	require.Eventually(t, func() bool {
		least = min(least, b.view(t).ServingCount())
		r := b.scalingStatus(t).Rollout
		return r != nil && r.Status == api.RolloutSuccessful
	}, patience, 20*time.Millisecond)
	require.GreaterOrEqual(t, least, 2)
	view := b.view(t)
	require.Equal(t, 3, view.ServingCount())
	for i := range view.Members {
		require.NotContains(t, former, view.Members[i].AgentID)
		require.Equal(t, 3, view.Members[i].MaxTasks)
	}

	t.Log("a canary is beside the others until a person promotes it")
	slots := func() (slots []int) {
		view := b.view(t)
		for i := range view.Members {
			if view.Members[i].Serving() {
				slots = append(slots, view.Members[i].MaxTasks)
			}
		}
		slices.Sort(slots)
		return slots
	}
	until := func(number int, status api.RolloutStatus) (r *api.Rollout) {
		require.Eventually(t, func() bool {
			r = b.scalingStatus(t).Rollout
			return r.Number == number && r.Status == status
		}, patience, 20*time.Millisecond)
		return r
	}
	decide := func(what string) int {
		status, _ := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/scaling/rollout/"+what,
			map[string]any{"reason": "I looked"}, nil)
		return status
	}
	require.Equal(t, http.StatusConflict, decide("promote"))
	spawn := settings["spawn"].(map[string]any)
	spawn["slots"], spawn["drain_timeout"], spawn["join_timeout"] = 4, "3s", "2s"
	settings["rollout"] = map[string]any{"healthy_time": "1s", "deadline": "2m", "canary": 1}
	b.patch(t, map[string]any{"scaling": settings})
	until(3, api.RolloutWaiting)
	require.Equal(t, []int{3, 3, 3, 4}, slots())
	require.Equal(t, http.StatusOK, decide("promote"))
	require.Equal(t, "promoted by local: I looked", until(3, api.RolloutSuccessful).Reason)
	require.Equal(t, []int{4, 4, 4}, slots())
	require.Eventually(t, func() bool { return len(y.running()) == 3 }, patience, 20*time.Millisecond)

	t.Log("a canary that does not start is reverted, and no other agent is touched")
	former = y.running()
	y.set(func(y *yard) { y.stillAt = errors.Join(spawner.ErrRefused, errors.New("no such image")) })
	spawn["slots"] = 5
	settings["rollout"] = map[string]any{"healthy_time": "1s", "deadline": "6s", "canary": 1, "auto_revert": true}
	b.patch(t, map[string]any{"scaling": settings})
	reason := until(5, api.RolloutSuccessful).Reason
	require.Contains(t, reason, "rollout 4 failed: it did not get on for 6s: 0 of 1 canary")
	require.Eventually(t, func() bool { return slices.Equal(former, y.running()) }, patience, 20*time.Millisecond)
	require.Equal(t, 4, b.view(t).Config.Scaling.Spawn.Slots)

	t.Log("so is a healthy one, by hand")
	y.set(func(y *yard) { y.stillAt = nil })
	b.patch(t, map[string]any{"scaling": settings})
	until(6, api.RolloutWaiting)
	require.Equal(t, http.StatusOK, decide("revert"))
	require.Equal(t, "reverted by local: I looked", until(7, api.RolloutSuccessful).Reason)
	require.Eventually(t, func() bool { return slices.Equal(former, y.running()) }, patience, 20*time.Millisecond)
	require.Equal(t, http.StatusConflict, decide("revert"))

	query := url.Values{"cluster": {b.cluster}, "type": {"rollout"}, "since": {"1h"}, "follow": {"false"}}
	told := listen(t, b.node, query, "")
	<-told.ended
	var types []string
	for _, e := range told.list() {
		if e.Type == api.EventGap && e.Data.Cluster == "" {
			continue // about a hub that another test ended: rollouts are told by the cluster
		}
		types = append(types, strings.TrimPrefix(string(e.Type), api.EventPrefix+"rollout."))
		require.Equal(t, b.cluster, e.Data.Cluster)
	}
	require.Equal(t, strings.Fields("started succeeded started waiting promoted succeeded "+
		"started failed reverted succeeded started waiting cancelled reverted succeeded"), types[2:]) // but the yard's
}
