package workflows_test

import (
	"context"
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

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
)

// scalingRun is a run of the Scaling workflow with a scripted spawner and cluster.
type scalingRun struct {
	*sdktestsuite.TestWorkflowEnvironment
	noSpawner bool
	spawnErr  map[string]error
	joins     map[string]bool
	stopErr   error
	retireErr error

	mu      sync.Mutex
	started []string
	stopped map[string]bool // by agent; true: gracefully
	retired []string
	told    *fleet.ScalingResult
}

func newScalingRun(t *testing.T) *scalingRun {
	t.Helper()
	r := &scalingRun{TestWorkflowEnvironment: workflowtest.NewEnvironment(), stopped: map[string]bool{}}
	worker.RegisterWorkflows(r)
	register := func(name string, f any) {
		r.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
	late := temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	register(contract.FindSpawnerActivity.Name, func(context.Context) (contract.SpawnerInfo, error) {
		if r.noSpawner {
			return contract.SpawnerInfo{}, late
		}
		return contract.SpawnerInfo{Name: "here", Platform: fleet.PlatformProcess}, nil
	})
	register(contract.SpawnAgentActivity.Name, func(_ context.Context, spec fleet.SpawnSpec) (fleet.Spawned, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.spawnErr[spec.ID]; err != nil {
			return fleet.Spawned{}, err
		}
		r.started = append(r.started, spec.ID)
		return fleet.Spawned{ID: spec.ID, Spawner: "here", Handle: "42", StartedAt: time.Now()}, nil
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
			told := result.(fleet.ScalingResult)
			r.told = &told
			return nil
		}).Maybe()
	r.OnSignalExternalWorkflow(mock.Anything, contract.ClusterWorkflowID("c"), "", contract.AnnounceSignal.Name,
		mock.Anything).Return(nil).Maybe()
	return r
}

func (r *scalingRun) run(t *testing.T, in contract.ScalingInput) fleet.ScalingRecord {
	t.Helper()
	in.Cluster, in.Number = "c", 7
	in.Spawn = fleet.ScalingPolicy{}.WithDefaults().Spawn
	r.ExecuteWorkflow(contract.ScalingWorkflow, in)
	require.NoError(t, r.GetWorkflowError())
	var record fleet.ScalingRecord
	require.NoError(t, r.GetWorkflowResult(&record))
	require.NotNil(t, record.CompletedAt)
	require.Equal(t, "c:7", record.ID)
	require.NotNil(t, r.told, "the cluster is told")
	require.Equal(t, int64(7), r.told.Number)
	return record
}

func statuses(r fleet.ScalingRecord) map[string]fleet.ScaledStatus {
	found := map[string]fleet.ScaledStatus{}
	for _, a := range r.Agents {
		found[a.AgentID] = a.Status
	}
	return found
}

var up = contract.ScalingInput{Decision: fleet.ScalingDecision{Change: fleet.ScaleUp, Current: 1},
	Starts: []string{"a", "b"}}

func TestAgentsAreStarted(t *testing.T) {
	t.Parallel()
	refused := temporal.NewNonRetryableApplicationError("no such program", contract.SpawnRefused, nil)
	for name, tc := range map[string]struct {
		set     func(*scalingRun)
		status  fleet.ScalingStatus
		agents  map[string]fleet.ScaledStatus
		errors  string
		stopped map[string]bool
	}{
		"all join": {
			set:     func(r *scalingRun) { r.joins = map[string]bool{"a": true, "b": true} },
			status:  fleet.ScalingSucceeded,
			agents:  map[string]fleet.ScaledStatus{"a": fleet.ScaledOnline, "b": fleet.ScaledOnline},
			stopped: map[string]bool{},
		},
		"one never joins": {
			set:    func(r *scalingRun) { r.joins = map[string]bool{"a": true} },
			status: fleet.ScalingPartial,
			agents: map[string]fleet.ScaledStatus{"a": fleet.ScaledOnline, "b": fleet.ScaledFailed},
			errors: "b: it did not come online within 1m0s of its start", stopped: map[string]bool{"b": false},
		},
		"one is refused": {
			set: func(r *scalingRun) {
				r.joins, r.spawnErr = map[string]bool{"b": true}, map[string]error{"a": refused}
			},
			status: fleet.ScalingPartial,
			agents: map[string]fleet.ScaledStatus{"a": fleet.ScaledFailed, "b": fleet.ScaledOnline},
			errors: "a: it could not be started: no such program", stopped: map[string]bool{"a": false},
		},
		"no spawner": {
			set:     func(r *scalingRun) { r.noSpawner = true },
			status:  fleet.ScalingFailed,
			agents:  map[string]fleet.ScaledStatus{"a": fleet.ScaledFailed, "b": fleet.ScaledFailed},
			errors:  "no spawner is there to start agents; start one with mainstay serve --roles spawner",
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

func TestAgentsAreStopped(t *testing.T) {
	t.Parallel()
	down := contract.ScalingInput{Decision: fleet.ScalingDecision{Change: fleet.ScaleDown, Current: 3, Reason: "idle"},
		Stops: []contract.StopAgent{{AgentID: "a", Spawner: "here"}, {AgentID: "b", Spawner: "there"}}}
	away := temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	connected := temporal.NewNonRetryableApplicationError("the agent is still connected", contract.Refused, nil)
	for name, tc := range map[string]struct {
		set     func(*scalingRun)
		drains  map[string]fleet.DrainStatus
		status  fleet.ScalingStatus
		agents  map[string]fleet.ScaledStatus
		errors  string
		stopped map[string]bool
		retired []string
	}{
		"drained, stopped, forgotten": {
			drains:  map[string]fleet.DrainStatus{"a": fleet.DrainCompleted, "b": fleet.DrainCompleted},
			status:  fleet.ScalingSucceeded,
			agents:  map[string]fleet.ScaledStatus{"a": fleet.ScaledStopped, "b": fleet.ScaledStopped},
			stopped: map[string]bool{"a": true, "b": true}, retired: []string{"a", "b"},
		},
		"who was not drained is not stopped": {
			drains:  map[string]fleet.DrainStatus{"a": fleet.DrainFailed, "b": fleet.DrainCompleted},
			status:  fleet.ScalingPartial,
			agents:  map[string]fleet.ScaledStatus{"a": fleet.ScaledFailed, "b": fleet.ScaledStopped},
			errors:  "a: its drain is failed: the hub is gone",
			stopped: map[string]bool{"b": true}, retired: []string{"b"},
		},
		"its spawner is away, and it is connected": {
			set:     func(r *scalingRun) { r.stopErr, r.retireErr = away, connected },
			drains:  map[string]fleet.DrainStatus{"a": fleet.DrainCompleted, "b": fleet.DrainCompleted},
			status:  fleet.ScalingFailed,
			agents:  map[string]fleet.ScaledStatus{"a": fleet.ScaledFailed, "b": fleet.ScaledFailed},
			errors:  "a: its process was not stopped: spawner here does not answer; it stays in maintenance, and the stop is tried again",
			stopped: map[string]bool{"a": true, "b": true},
		},
		"its spawner is away, and it is gone": {
			set:     func(r *scalingRun) { r.stopErr = away },
			drains:  map[string]fleet.DrainStatus{"a": fleet.DrainCompleted, "b": fleet.DrainCompleted},
			status:  fleet.ScalingSucceeded,
			agents:  map[string]fleet.ScaledStatus{"a": fleet.ScaledStopped, "b": fleet.ScaledStopped},
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
				mock.Anything).Return(func(_ workflow.Context, in contract.DrainInput) (fleet.DrainRecord, error) {
				require.Equal(t, "c:scaling-7", in.ID)
				require.True(t, fleet.IsScalingDrain(in.ID))
				require.Equal(t, 2, in.MaxParallel)
				record := fleet.DrainRecord{ID: in.ID}
				for _, agent := range in.Agents {
					drain := fleet.AgentDrain{AgentID: agent, Status: tc.drains[agent]}
					if drain.Status == fleet.DrainFailed {
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
