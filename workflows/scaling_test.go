package workflows_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// scalingRun is a run of the Scaling workflow with a scripted spawner and cluster.
type scalingRun struct {
	*sdktestsuite.TestWorkflowEnvironment
	noSpawner bool
	there     map[string]contract.SpawnerInfo // by task queue; nil: one everywhere
	spawnErr  map[string]error
	joins     map[string]bool
	stopErr   error
	retireErr error

	mu      sync.Mutex
	started []string
	// spawnedAt are the task queues where agents were started, each once.
	spawnedAt []string
	stopped   map[string]bool // by agent; true: gracefully
	retired   []string
	told      *scaling.ScalingResult
}

func newScalingRun(t *testing.T) *scalingRun {
	t.Helper()
	r := &scalingRun{TestWorkflowEnvironment: workflowtest.NewEnvironment(), stopped: map[string]bool{}}
	worker.RegisterWorkflows(r)
	register := func(name string, f any) {
		r.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
	late := temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	register(contract.FindSpawnerActivity.Name, func(ctx context.Context) (contract.SpawnerInfo, error) {
		if r.there != nil {
			if info, there := r.there[activity.GetInfo(ctx).TaskQueue]; there {
				return info, nil
			}
			return contract.SpawnerInfo{}, late
		}
		if r.noSpawner {
			return contract.SpawnerInfo{}, late
		}
		return contract.SpawnerInfo{Name: "here", Platform: api.PlatformProcess}, nil
	})
	register(contract.SpawnAgentActivity.Name, func(ctx context.Context, spec cluster.SpawnSpec) (cluster.Spawned, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if queue := activity.GetInfo(ctx).TaskQueue; !slices.Contains(r.spawnedAt, queue) {
			r.spawnedAt = append(r.spawnedAt, queue)
		}
		if err := r.spawnErr[spec.ID]; err != nil {
			return cluster.Spawned{}, err
		}
		r.started = append(r.started, spec.ID)
		return cluster.Spawned{ID: spec.ID, Spawner: "here", Handle: "42", StartedAt: time.Now()}, nil
	})
	register(contract.TerminateAgentActivity.Name, func(_ context.Context, in contract.TerminateInput) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stopped[in.ID] = in.Graceful
		return r.stopErr
	})
	register(contract.AwaitJoinedActivity.Name, func(_ context.Context,
		in contract.AwaitJoinedInput) (contract.AwaitJoinedResult, error) {
		result := contract.AwaitJoinedResult{Joined: map[string]time.Time{}}
		for _, agent := range in.Agents {
			if r.joins[agent] {
				result.Joined[agent] = time.Now()
			}
		}
		return result, nil
	})
	register(contract.RetireActivity.Name, func(_ context.Context, in contract.ClusterRetire) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.retireErr == nil {
			r.retired = append(r.retired, in.Request.AgentID)
		}
		return r.retireErr
	})
	r.OnSignalExternalWorkflow(mock.Anything, contract.ClusterWorkflowID("c"), "", contract.ScaledSignal.Name,
		mock.Anything).Return(
		func(_, _, _, _ string, result any) error {
			told := result.(scaling.ScalingResult)
			r.told = &told
			return nil
		}).Maybe()
	r.OnSignalExternalWorkflow(mock.Anything, contract.ClusterWorkflowID("c"), "", contract.AnnounceSignal.Name,
		mock.Anything).Return(nil).Maybe()
	return r
}

func (r *scalingRun) run(t *testing.T, in contract.ScalingInput) api.ScalingRecord {
	t.Helper()
	in.Cluster, in.Number = "c", 7
	in.Spawn = api.ScalingPolicy{Spawn: in.Spawn}.WithDefaults().Spawn
	r.ExecuteWorkflow(contract.ScalingWorkflow, in)
	require.NoError(t, r.GetWorkflowError())
	var record api.ScalingRecord
	require.NoError(t, r.GetWorkflowResult(&record))
	require.NotNil(t, record.CompletedAt)
	require.Equal(t, "c:7", record.ID)
	require.NotNil(t, r.told, "the cluster is told")
	require.Equal(t, int64(7), r.told.Number)
	return record
}

func statuses(r api.ScalingRecord) map[string]api.ScaledStatus {
	found := map[string]api.ScaledStatus{}
	for _, a := range r.Agents {
		found[a.AgentID] = a.Status
	}
	return found
}

var up = contract.ScalingInput{Decision: cluster.ScalingDecision{Change: api.ScaleUp, Current: 1},
	Starts: []string{"a", "b"}}

func TestAgentsAreStarted(t *testing.T) {
	t.Parallel()
	refused := temporal.NewNonRetryableApplicationError("no such program", contract.SpawnRefused, nil)
	for name, tc := range map[string]struct {
		set     func(*scalingRun)
		status  api.ScalingOutcome
		agents  map[string]api.ScaledStatus
		errors  string
		stopped map[string]bool
	}{
		"all join": {
			set:     func(r *scalingRun) { r.joins = map[string]bool{"a": true, "b": true} },
			status:  api.ScalingSucceeded,
			agents:  map[string]api.ScaledStatus{"a": api.ScaledOnline, "b": api.ScaledOnline},
			stopped: map[string]bool{},
		},
		"one never joins": {
			set:    func(r *scalingRun) { r.joins = map[string]bool{"a": true} },
			status: api.ScalingPartial,
			agents: map[string]api.ScaledStatus{"a": api.ScaledOnline, "b": api.ScaledFailed},
			errors: "b: it did not come online within 1m0s of its start", stopped: map[string]bool{"b": false},
		},
		"one is refused": {
			set: func(r *scalingRun) {
				r.joins, r.spawnErr = map[string]bool{"b": true}, map[string]error{"a": refused}
			},
			status: api.ScalingPartial,
			agents: map[string]api.ScaledStatus{"a": api.ScaledFailed, "b": api.ScaledOnline},
			errors: "a: it could not be started: no such program", stopped: map[string]bool{"a": false},
		},
		"no spawner": {
			set:     func(r *scalingRun) { r.noSpawner = true },
			status:  api.ScalingFailed,
			agents:  map[string]api.ScaledStatus{"a": api.ScaledFailed, "b": api.ScaledFailed},
			errors:  "no spawner of platform process is there to start agents; start one with mainstay serve --roles spawner",
			stopped: map[string]bool{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newScalingRun(t)
			tc.set(r)
			record := r.run(t, up)
			require.Equal(t, tc.status, record.Status)
			require.Equal(t, tc.agents, statuses(record))
			require.Equal(t, tc.errors, record.Error)
			require.Equal(t, tc.errors, r.told.Failed)
			require.Equal(t, tc.stopped, r.stopped)
			require.Equal(t, []int{1, 3}, []int{record.From, record.To})
		})
	}
}

// TestOnlySpawnersOfThePlatformStartAgents looks at which spawner is asked, and which one then starts the agents.
func TestOnlySpawnersOfThePlatformStartAgents(t *testing.T) {
	t.Parallel()
	docker := contract.SpawnerInfo{Name: "d", Platform: api.PlatformDocker}
	process := contract.SpawnerInfo{Name: "p", Platform: api.PlatformProcess}
	full := contract.SpawnerInfo{Name: "d", Platform: api.PlatformDocker, Agents: 2, MaxAgents: 2}
	for name, tc := range map[string]struct {
		spawn  api.SpawnPolicy
		there  map[string]contract.SpawnerInfo // by task queue
		spawns string                          // the spawner that starts the agents
		errors string
	}{
		"process by default": {
			there: map[string]contract.SpawnerInfo{"spawner": process, "spawners/docker": docker}, spawns: "p",
		},
		"the platform's": {
			spawn: api.SpawnPolicy{Platform: api.PlatformDocker},
			there: map[string]contract.SpawnerInfo{"spawner": process, "spawners/docker": docker}, spawns: "d",
		},
		"none of the platform": {
			spawn:  api.SpawnPolicy{Platform: api.PlatformDocker},
			there:  map[string]contract.SpawnerInfo{"spawner": process},
			errors: "no spawner of platform docker is there to start agents; start one with mainstay serve --roles spawner",
		},
		"the next platform": {
			spawn: api.SpawnPolicy{Platform: api.PlatformDocker,
				FallbackPlatforms: []api.Platform{api.PlatformProcess}},
			there: map[string]contract.SpawnerInfo{"spawner": process}, spawns: "p",
		},
		"the named one, whatever it serves": {
			spawn: api.SpawnPolicy{Spawner: "d"},
			there: map[string]contract.SpawnerInfo{"spawner/d": docker}, spawns: "d",
		},
		"the named one serves another platform": {
			spawn:  api.SpawnPolicy{Spawner: "d", Platform: api.PlatformProcess},
			there:  map[string]contract.SpawnerInfo{"spawner/d": docker},
			errors: "spawner d serves platform docker, and scaling.spawn.platform is process",
		},
		"the named one is full": {
			spawn:  api.SpawnPolicy{Spawner: "d"},
			there:  map[string]contract.SpawnerInfo{"spawner/d": full},
			errors: "spawner d runs the 2 agents that its max_agents allows",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newScalingRun(t)
			r.joins, r.there = map[string]bool{"a": true, "b": true}, tc.there
			in := up
			in.Spawn = tc.spawn
			record := r.run(t, in)
			require.Equal(t, tc.errors, record.Error)
			require.Equal(t, tc.spawns, record.Agents[0].Spawner)
			if tc.spawns != "" {
				require.Equal(t, []string{contract.SpawnerQueue(tc.spawns)}, r.spawnedAt)
			}
		})
	}
}

func TestAgentsAreStartedAnew(t *testing.T) {
	t.Parallel()
	in := contract.ScalingInput{
		Decision: cluster.ScalingDecision{Change: api.ScaleDown, Rule: api.RuleRestart, Current: 3, Reason: "ill"},
		Stops:    []contract.StopAgent{{AgentID: "a", Spawner: "here"}, {AgentID: "b", Spawner: "there"}},
	}
	r := newScalingRun(t)
	r.joins = map[string]bool{"a": true}
	record := r.run(t, in)
	require.Equal(t, map[string]api.ScaledStatus{"a": api.ScaledOnline, "b": api.ScaledFailed}, statuses(record))
	require.Equal(t, []int{3, 3}, []int{record.From, record.To})
	require.Equal(t, "b: it did not come online within 1m0s of its start; it was stopped for good", record.Error)
	require.ElementsMatch(t, []string{"a", "b"}, r.started)
	require.ElementsMatch(t, []string{contract.SpawnerQueue("here"), contract.SpawnerQueue("there")}, r.spawnedAt,
		"each at its own spawner")
	require.Equal(t, []string{"b"}, r.retired, "another takes its place")

	r = newScalingRun(t)
	r.stopErr = temporal.NewNonRetryableApplicationError("the engine is away", "Away", nil)
	record = r.run(t, in)
	require.Equal(t, "a: its process was not stopped: the engine is away", record.Error)
	require.Empty(t, append(r.started, r.retired...))
}

func TestAgentsAreStopped(t *testing.T) {
	t.Parallel()
	down := contract.ScalingInput{Decision: cluster.ScalingDecision{Change: api.ScaleDown, Current: 3, Reason: "idle"},
		Stops: []contract.StopAgent{{AgentID: "a", Spawner: "here"}, {AgentID: "b", Spawner: "there"}}}
	away := temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	connected := temporal.NewNonRetryableApplicationError("the agent is still connected", contract.Refused, nil)
	for name, tc := range map[string]struct {
		set     func(*scalingRun)
		drains  map[string]api.DrainStatus
		status  api.ScalingOutcome
		agents  map[string]api.ScaledStatus
		errors  string
		stopped map[string]bool
		retired []string
	}{
		"drained, stopped, forgotten": {
			drains:  map[string]api.DrainStatus{"a": api.DrainCompleted, "b": api.DrainCompleted},
			status:  api.ScalingSucceeded,
			agents:  map[string]api.ScaledStatus{"a": api.ScaledStopped, "b": api.ScaledStopped},
			stopped: map[string]bool{"a": true, "b": true}, retired: []string{"a", "b"},
		},
		"who was not drained is not stopped": {
			drains:  map[string]api.DrainStatus{"a": api.DrainFailed, "b": api.DrainCompleted},
			status:  api.ScalingPartial,
			agents:  map[string]api.ScaledStatus{"a": api.ScaledFailed, "b": api.ScaledStopped},
			errors:  "a: its drain is failed: the hub is gone",
			stopped: map[string]bool{"b": true}, retired: []string{"b"},
		},
		"its spawner is away, and it is connected": {
			set:     func(r *scalingRun) { r.stopErr, r.retireErr = away, connected },
			drains:  map[string]api.DrainStatus{"a": api.DrainCompleted, "b": api.DrainCompleted},
			status:  api.ScalingFailed,
			agents:  map[string]api.ScaledStatus{"a": api.ScaledFailed, "b": api.ScaledFailed},
			errors:  "a: its process was not stopped: spawner here does not answer; it stays in maintenance, and the stop is tried again",
			stopped: map[string]bool{"a": true, "b": true},
		},
		"its spawner is away, and it is gone": {
			set:     func(r *scalingRun) { r.stopErr = away },
			drains:  map[string]api.DrainStatus{"a": api.DrainCompleted, "b": api.DrainCompleted},
			status:  api.ScalingSucceeded,
			agents:  map[string]api.ScaledStatus{"a": api.ScaledStopped, "b": api.ScaledStopped},
			stopped: map[string]bool{"a": true, "b": true}, retired: []string{"a", "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newScalingRun(t)
			if tc.set != nil {
				tc.set(r)
			}
			r.OnWorkflow(contract.DrainWorkflow, mock.Anything,
				mock.Anything).Return(func(_ workflow.Context, in contract.DrainInput) (api.DrainRecord, error) {
				require.Equal(t, "c:scaling-7", in.ID)
				require.True(t, scaling.IsScalingDrain(in.ID))
				require.Equal(t, 2, in.MaxParallel)
				record := api.DrainRecord{ID: in.ID}
				for _, agent := range in.Agents {
					drain := api.AgentDrain{AgentID: agent, Status: tc.drains[agent]}
					if drain.Status == api.DrainFailed {
						drain.Error = "the hub is gone"
					}
					record.Agents = append(record.Agents, drain)
				}
				return record, nil
			})
			record := r.run(t, down)
			require.Equal(t, tc.status, record.Status)
			require.Equal(t, tc.agents, statuses(record))
			require.Equal(t, tc.errors, record.Error)
			require.Equal(t, tc.stopped, r.stopped)
			require.ElementsMatch(t, tc.retired, r.retired)
			require.Equal(t, []int{3, 1}, []int{record.From, record.To})
		})
	}
}
