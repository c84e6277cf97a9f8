package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// cycleRun is a run of the HealingCycle workflow with scripted findings.
type cycleRun struct {
	*sdktestsuite.TestWorkflowEnvironment
	found      contract.Examined
	examineErr error
	held       []cluster.HeldAttempt // at the first hub that is asked
	silentHub  bool                  // the second hub does not answer
	tuneErr    error

	mu       sync.Mutex
	examined []contract.ExamineInput
	asked    []contract.HoldsAttemptsInput
	tuned    []api.Duration
	actions  map[string]contract.HealingActionInput // that were started, by workflow
}

func newCycleRun(t *testing.T) *cycleRun {
	t.Helper()
	r := &cycleRun{TestWorkflowEnvironment: workflowtest.NewEnvironment(),
		actions: map[string]contract.HealingActionInput{}}
	r.SetStartTime(healingAt)
	r.RegisterWorkflowWithOptions(workflows.HealingCycle, workflow.RegisterOptions{Name: contract.HealingCycleWorkflow})
	r.RegisterWorkflowWithOptions(func(workflow.Context, contract.HealingActionInput) (api.HealingRecord, error) {
		return api.HealingRecord{}, nil
	}, workflow.RegisterOptions{Name: contract.HealingActionWorkflow})
	r.SetOnChildWorkflowStartedListener(func(info *workflow.Info, _ workflow.Context, args converter.EncodedValues) {
		var in contract.HealingActionInput
		require.NoError(t, args.Get(&in))
		r.actions[info.WorkflowExecution.ID] = in
	})
	for name, does := range map[string]any{
		contract.ExamineFleetActivity.Name: func(_ context.Context, in contract.ExamineInput) (contract.Examined,
			error) {
			r.examined = append(r.examined, in)
			return r.found, r.examineErr
		},
		contract.HoldsAttemptsActivity.Name: func(_ context.Context,
			in contract.HoldsAttemptsInput) (contract.HoldsAttemptsResult, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.asked = append(r.asked, in); len(r.asked) == 1 {
				return contract.HoldsAttemptsResult{Held: r.held}, nil
			}
			if r.silentHub {
				return contract.HoldsAttemptsResult{}, errors.New("no answer")
			}
			return contract.HoldsAttemptsResult{}, nil
		},
		contract.TuneHealingActivity.Name: func(_ context.Context, every api.Duration) error {
			r.tuned = append(r.tuned, every)
			return r.tuneErr
		},
	} {
		r.RegisterActivityWithOptions(does, activity.RegisterOptions{Name: name})
	}
	return r
}

// cycle runs a cycle to its end.
func (r *cycleRun) cycle(t *testing.T, in contract.HealingCycleInput) api.HealingCycleRecord {
	t.Helper()
	r.ExecuteWorkflow(contract.HealingCycleWorkflow, in)
	require.True(t, r.IsWorkflowCompleted())
	require.NoError(t, r.GetWorkflowError())
	var result api.HealingCycleRecord
	require.NoError(t, r.GetWorkflowResult(&result))
	record := result
	require.Equal(t, "20261121t100000z", record.ID)
	require.Equal(t, healingAt, record.StartedAt)
	require.NotNil(t, record.CompletedAt)
	require.Len(t, r.examined, 1)
	require.True(t, r.examined[0].At.Equal(healingAt))
	return record
}

func verdicts(list []api.HealingDecision) []string {
	var texts []string
	for _, d := range list {
		texts = append(texts, string(d.Type)+" "+d.TargetID+" "+string(d.Verdict))
	}
	return texts
}

// illCluster has, of six agents, one that hangs, one that is degraded, and one that a person keeps out of service.
func illCluster() healing.HealingCase {
	ill := func(id string, level api.HealthLevel, status api.AgentStatus, outBy string) healing.HealingAgent {
		return healing.HealingAgent{AgentID: id, Status: status, Since: healingAt.Add(-time.Hour), Epoch: 3, Slots: 4,
			OutBy:  outBy,
			Health: cluster.MemberHealth{Level: level, Score: 0.4, Why: "disk errors", Since: healingAt.Add(-time.Hour)}}
	}
	return healing.HealingCase{Cluster: "c", Policy: api.HealingPolicy{MaxActions: 5}.WithDefaults(), Members: 6,
		Serving: 6, Healthy: 4, Agents: []healing.HealingAgent{
			ill("degraded", api.HealthDegraded, api.AgentOnline, ""),
			ill("hung", api.HealthCritical, api.AgentOnline, ""),
			ill("kept", api.HealthDegraded, api.AgentMaintenance, "operator"),
		}}
}

func TestCycleWithNothingToDo(t *testing.T) {
	t.Parallel()
	r := newCycleRun(t)
	r.found = contract.Examined{Clusters: 3, Agents: 12, Silent: []string{"s"}}
	record := r.cycle(t, contract.HealingCycleInput{Every: api.Duration(time.Minute)})
	require.Equal(t, []any{3, 12, []string{"s"}, false}, []any{record.Clusters, record.Agents, record.Silent,
		record.DryRun})
	require.Equal(t, api.Duration(time.Minute), r.examined[0].Every)
	require.Empty(t, record.Decisions)
	require.Empty(t, r.actions)
	require.Empty(t, r.asked)
	require.Empty(t, r.tuned)
	require.Equal(t, healingAt, *record.CompletedAt, "it waited for nothing")
}

func TestCycleStartsActions(t *testing.T) {
	t.Parallel()
	r := newCycleRun(t)
	braked := healing.HealingCase{Cluster: "d", Policy: api.HealingPolicy{}.WithDefaults(), Serving: 1, Wanted: 2,
		Braked:     true,
		ShortSince: healingAt.Add(-time.Hour), Stuck: []healing.Stuck{{What: healing.StuckReviews, Count: 2,
			Reason: "2 tasks wait"}}}
	r.found = contract.Examined{Clusters: 2, Agents: 7, Cases: []healing.HealingCase{illCluster(), braked}}
	record := r.cycle(t, contract.HealingCycleInput{})
	require.Equal(t, []string{"failover_agent hung act", "drain_agent degraded act", "drain_agent kept waiting",
		"rebalance_cluster d skipped", "report reviews act"}, verdicts(record.Decisions))
	require.ElementsMatch(t, []string{"healing/c/failover_agent/hung", "healing/c/drain_agent/degraded",
		"healing/d/rebalance_cluster/d", "healing/d/report/reviews"},
		slices.Collect(maps.Keys(r.actions)), "what waits is no action")
	for id, in := range r.actions {
		require.Equal(t, record.ID, in.Cycle)
		require.Equal(t, healingAt, in.DecidedAt)
		want := r.found.Cases[0].Policy
		if in.Decision.Cluster == "d" {
			want = braked.Policy
		}
		require.Equal(t, want, in.Policy)
		require.Equal(t, id, contract.HealingActionWorkflowID(in.Decision.Cluster, in.Decision.Type,
			in.Decision.TargetID))
	}
	require.Equal(t, record.Decisions[0], r.actions["healing/c/failover_agent/hung"].Decision, "the facts go with it")
}

// hugeCluster has 2,500 agents that are ill and say at length why, while the brake is engaged.
func hugeCluster(name string) healing.HealingCase {
	c := healing.HealingCase{Cluster: name, Policy: api.HealingPolicy{}.WithDefaults(), Members: 2500, Serving: 2500,
		Braked: true}
	for i := range c.Members {
		c.Agents = append(c.Agents, healing.HealingAgent{AgentID: fmt.Sprintf("agent-%04d", i), Status: api.AgentOnline,
			Health: cluster.MemberHealth{Level: api.HealthCritical, Why: strings.Repeat("\x01", 256),
				Since: healingAt.Add(-time.Hour)}})
	}
	return c
}

// TestCycleOfManyIllAgents holds a cycle to what Temporal takes, and looks after the other clusters all the same.
func TestCycleOfManyIllAgents(t *testing.T) {
	t.Parallel()
	r := newCycleRun(t)
	r.found.Cases = []healing.HealingCase{hugeCluster("a"), illCluster(), hugeCluster("z")}
	record := r.cycle(t, contract.HealingCycleInput{})
	begun := map[string]int{}
	for _, in := range r.actions {
		begun[in.Decision.Cluster]++
	}
	require.Equal(t, map[string]int{"a": 100, "c": 2, "z": 100}, begun)
	require.Equal(t, 5003, len(record.Decisions)+record.LeftOut)
	require.True(t, contract.Fits(record))
	require.Contains(t, record.Decisions[100].Why, "100 decisions are enough for one cycle")
}

// TestCycleOfManyIllClusters bounds what all clusters together begin.
func TestCycleOfManyIllClusters(t *testing.T) {
	t.Parallel()
	r := newCycleRun(t)
	for i := range 12 {
		c := hugeCluster(fmt.Sprintf("c%02d", i))
		c.Agents = c.Agents[:101]
		r.found.Cases = append(r.found.Cases, c)
	}
	r.cycle(t, contract.HealingCycleInput{})
	begun := len(r.actions)
	require.Equal(t, 1000, begun)
}

// TestCycleAsksManyHubs asks them in parts.
func TestCycleAsksManyHubs(t *testing.T) {
	t.Parallel()
	r := newCycleRun(t)
	one := healing.HealingCase{Cluster: "c", Policy: api.HealingPolicy{}.WithDefaults()}
	for i := range 1000 {
		one.Suspects = append(one.Suspects, api.Orphan{TaskID: fmt.Sprintf("t-%04d", i)})
	}
	for i := range 9 {
		one.Hubs = append(one.Hubs, fmt.Sprintf("h-%d", i))
	}
	r.held = []cluster.HeldAttempt{{TaskID: "t-0000"}}
	r.found.Cases = []healing.HealingCase{one}
	record := r.cycle(t, contract.HealingCycleInput{})
	require.Len(t, r.asked, 9)
	require.Len(t, record.Decisions, 999)
	require.Len(t, r.actions, 20)
}

func TestCycleDryRun(t *testing.T) {
	t.Parallel()
	r := newCycleRun(t)
	planned := illCluster()
	planned.Policy.Mode = api.HealingDryRun // as the examination says in a dry run
	r.found = contract.Examined{Clusters: 1, Agents: 6, Cases: []healing.HealingCase{planned}}
	record := r.cycle(t, contract.HealingCycleInput{Cluster: "c", DryRun: true})
	require.True(t, record.DryRun)
	require.True(t, r.examined[0].DryRun)
	require.Equal(t, "c", r.examined[0].Cluster)
	require.Equal(t, []string{"failover_agent hung planned", "drain_agent degraded planned",
		"drain_agent kept waiting"}, verdicts(record.Decisions))
	require.Empty(t, r.actions, "nothing is started")
}

func TestCycleFindsOrphans(t *testing.T) {
	t.Parallel()
	suspects := []api.Orphan{{TaskID: "t-1", Attempt: 1}, {TaskID: "t-2", Attempt: 3}}
	held := []cluster.HeldAttempt{{TaskID: "t-1", Attempt: 1}, {TaskID: "t-2", Attempt: 2}}
	for name, tc := range map[string]struct {
		hubs   []string
		silent bool
		asked  int
		want   []string
	}{
		"one hub has one; the other attempt is another": {[]string{"h-1", "h-2"}, false, 2,
			[]string{"reassign_task t-2 act"}},
		"a hub does not answer": {[]string{"h-1", "h-2"}, true, 3, nil},
		"no hub has agents of it": {nil, false, 0,
			[]string{"reassign_task t-1 act", "reassign_task t-2 act"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newCycleRun(t)
			r.held, r.silentHub = held, tc.silent
			r.found.Cases = []healing.HealingCase{{Cluster: "c", Policy: api.HealingPolicy{}.WithDefaults(),
				Suspects: suspects, Hubs: tc.hubs}}
			record := r.cycle(t, contract.HealingCycleInput{})
			require.Equal(t, tc.want, verdicts(record.Decisions))
			require.Len(t, r.actions, len(tc.want))
			for _, in := range r.actions {
				require.Contains(t, suspects, *in.Decision.Facts.Orphan)
				require.Equal(t, in.Decision.TargetID, in.Decision.Facts.Orphan.TaskID)
			}
			require.Len(t, r.asked, tc.asked, "one that does not answer is asked twice")
			for _, in := range r.asked {
				require.Equal(t, contract.HoldsAttemptsInput{Cluster: "c",
					Attempts: []cluster.HeldAttempt{{TaskID: "t-1", Attempt: 1}, {TaskID: "t-2", Attempt: 3}}}, in)
			}
		})
	}
}

// TestCycleGoesOn lets a cycle's other requests fail, which the next cycle repeats.
func TestCycleGoesOn(t *testing.T) {
	t.Parallel()
	r := newCycleRun(t)
	r.found = contract.Examined{Cases: []healing.HealingCase{illCluster()}, Every: api.Duration(10 * time.Second)}
	r.tuneErr = errors.New("no schedule")
	r.OnWorkflow(contract.HealingActionWorkflow, mock.Anything, mock.Anything).Return(api.HealingRecord{},
		sdktestsuite.ErrMockStartChildWorkflowFailed)
	record := r.cycle(t, contract.HealingCycleInput{Every: api.Duration(time.Minute)})
	require.Len(t, record.Decisions, 3)
	require.Equal(t, []api.Duration{api.Duration(10 * time.Second), api.Duration(10 * time.Second)}, r.tuned,
		"it is tried twice")
}

func TestCycleThatCannotLook(t *testing.T) {
	t.Parallel()
	r := newCycleRun(t)
	r.SetStartTime(time.Now()) // the time between tries is real
	r.examineErr = errors.New("temporal is away")
	r.ExecuteWorkflow(contract.HealingCycleWorkflow, contract.HealingCycleInput{})
	var failed *temporal.ApplicationError
	require.ErrorAs(t, r.GetWorkflowError(), &failed)
	require.ErrorContains(t, r.GetWorkflowError(), "the fleet could not be looked at")
	require.Len(t, r.examined, 3, "it is tried again")
	require.Empty(t, r.actions)
}
