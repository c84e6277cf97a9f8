package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	activitypb "go.temporal.io/api/activity/v1"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// pendingWork is a Temporal with open workflows and the attempts that are under way in them.
type pendingWork struct {
	client.Client
	pending map[string][]*workflowpb.PendingActivityInfo // by workflow
	pinned  map[string]int64                             // what CountWorkflow finds, by a part of the query
	waiting map[string]int64                             // what waits, by task queue
}

func (f *pendingWork) ListWorkflow(
	_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	answer := &workflowservice.ListWorkflowExecutionsResponse{}
	for id := range f.pending {
		kind := contract.TaskWorkflow
		if _, isRun := contract.RunOfWorkflowID(id); isRun {
			kind = contract.RunWorkflow
		}
		if strings.Contains(r.GetQuery(), contract.Equals("WorkflowType", kind)) {
			answer.Executions = append(answer.Executions, &workflowpb.WorkflowExecutionInfo{
				Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: "r"}})
		}
	}
	return answer, nil
}

func (f *pendingWork) DescribeWorkflowExecution(
	_ context.Context, id, _ string,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return &workflowservice.DescribeWorkflowExecutionResponse{PendingActivities: f.pending[id],
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
			Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: "r"}}}, nil
}

func (f *pendingWork) CountWorkflow(
	_ context.Context, r *workflowservice.CountWorkflowExecutionsRequest,
) (*workflowservice.CountWorkflowExecutionsResponse, error) {
	answer := &workflowservice.CountWorkflowExecutionsResponse{}
	for part, n := range f.pinned {
		if strings.Contains(r.GetQuery(), part) {
			answer.Count += n
		}
	}
	return answer, nil
}

func (f *pendingWork) WorkflowService() workflowservice.WorkflowServiceClient { return queues{f: f} }

type queues struct {
	workflowservice.WorkflowServiceClient
	f *pendingWork
}

func (q queues) DescribeTaskQueue(
	_ context.Context, r *workflowservice.DescribeTaskQueueRequest, _ ...grpc.CallOption,
) (*workflowservice.DescribeTaskQueueResponse, error) {
	return &workflowservice.DescribeTaskQueueResponse{Stats: &taskqueuepb.TaskQueueStats{
		ApproximateBacklogCount: q.f.waiting[r.GetTaskQueue().GetName()]}}, nil
}

// attempt is one that a hub has for an agent, with a checkpoint of so many bytes.
func attempt(t *testing.T, task string, number int, agent string, checkpoint ...int) *workflowpb.PendingActivityInfo {
	t.Helper()
	report := contract.AttemptReport{AgentID: agent, Hub: "h1"}
	for _, bytes := range checkpoint {
		report.Checkpoint = json.RawMessage(`"` + strings.Repeat("x", bytes-2) + `"`)
	}
	beat, err := converter.GetDefaultDataConverter().ToPayloads(report)
	require.NoError(t, err)
	return &workflowpb.PendingActivityInfo{ActivityId: contract.AttemptActivityID(task, number),
		ActivityType: &commonpb.ActivityType{Name: contract.RunTaskActivity.Name}, HeartbeatDetails: beat,
		State: enumspb.PENDING_ACTIVITY_STATE_STARTED, ActivityOptions: &activitypb.ActivityOptions{}}
}

// The record of an agent that was lost with its hub has the steps of runs too.
func TestHeldAtFindsStepsOfRuns(t *testing.T) {
	t.Parallel()
	f := &pendingWork{pending: map[string][]*workflowpb.PendingActivityInfo{
		contract.TaskWorkflowID("t-1"): {attempt(t, "t-1", 1, "a-1")},
		contract.RunWorkflowID("build-1"): {attempt(t, "build-1~a", 2, "a-2"), attempt(t, "build-1~b.3", 1, "a-2"),
			{ActivityType: &commonpb.ActivityType{Name: "Other"}, ActivityId: "7"}},
	}}
	held, err := store.Store{Client: f}.Tasks().HeldAt(t.Context(), "c", "h1")
	require.NoError(t, err)
	require.Equal(t, map[string][]cluster.HeldAttempt{"a-1": {{TaskID: "t-1", Attempt: 1}},
		"a-2": {{TaskID: "build-1~a", Attempt: 2}, {TaskID: "build-1~b.3", Attempt: 1}}}, held.Attempts())
}

// A lost hub's attempts are left out only where their checkpoints do not fit together: to end one without its newest
// would lose work.
func TestHeldAtLeavesOutWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	const quarter = 16 << 20
	f := &pendingWork{pending: map[string][]*workflowpb.PendingActivityInfo{contract.RunWorkflowID("build-1"): {
		attempt(t, "build-1~a", 1, "a-1", quarter), attempt(t, "build-1~b", 1, "a-1", 2*quarter),
		attempt(t, "build-1~too-large", 1, "a-1", quarter+1), attempt(t, "build-1~none", 1, "a-1"),
		attempt(t, "build-1~fits", 1, "a-1", quarter), attempt(t, "build-1~one-more", 1, "a-1", 2),
		attempt(t, "build-1~last", 1, "a-1")}}}
	held, err := store.Store{Client: f}.Tasks().HeldAt(t.Context(), "c", "h1")
	require.NoError(t, err)
	var kept []string
	for _, task := range held {
		kept = append(kept, task.ID)
	}
	require.Equal(t, []string{"build-1~a", "build-1~b", "build-1~none", "build-1~fits", "build-1~last"}, kept)
}

// The attempts of a lost hub fit into a signal, and each of its agents is known to have worked.
func TestAttemptsOfALostHubFitIntoASignal(t *testing.T) {
	t.Parallel()
	var held store.Held
	for n := range 30_000 {
		at := api.Attempt{Number: 1, AgentID: fmt.Sprintf("%063d", n%5000)}
		held = append(held, store.Task{Task: api.Task{ID: fmt.Sprintf("%0127d", n)},
			Delivery: &store.Delivery{Attempt: at, State: enumspb.PENDING_ACTIVITY_STATE_STARTED}})
	}
	attempts := held.Attempts()
	require.Len(t, attempts, 5000)
	require.True(t, contract.Fits(contract.HubLost{Hub: "h1", Attempts: attempts}))
	held = held[:100]
	for i := range held {
		held[i].Delivery.Attempt.AgentID = "a-1"
	}
	require.Len(t, held.Attempts()["a-1"], 100)
}

// Scaling stops no agent that steps of runs are pinned to.
func TestStepsPinAgents(t *testing.T) {
	t.Parallel()
	plan := job.Plan{Job: "build", Cluster: "c", Steps: []job.PlannedStep{
		{Step: api.Step{Task: &api.TaskSpec{Agent: "a-1"}}}, {Step: api.Step{Task: &api.TaskSpec{Agent: "${inputs.a}"}}},
		{Step: api.Step{Approve: &api.StepApprove{}}}}}
	start := contract.StartOfRun("build-1", &contract.RunInput{Plan: plan}, 0)
	labels, _ := start.Attributes.GetKeywordList(contract.AttrLabels)
	require.Equal(t, []string{"agent/a-1"}, labels)
	for name, f := range map[string]*pendingWork{
		"nothing":              {},
		"a step that is named": {pinned: map[string]int64{contract.Equals(contract.AttrLabels.GetName(), "agent/a-1"): 1}},
		"a step that waits":    {waiting: map[string]int64{"lane/c/agent/a-1": 1}},
	} {
		facts := scaling.ScalingFacts{Agents: []scaling.AgentActivity{{AgentID: "a-1"}}}
		_, err := store.Store{Client: f}.Clusters().CompleteScaling(t.Context(),
			&cluster.Cluster{Config: api.ClusterConfig{Name: "c"}}, &facts, func() cluster.ScalingDecision {
				if facts.Agents[0].Pinned {
					return cluster.ScalingDecision{}
				}
				return cluster.ScalingDecision{Change: api.ScaleDown, Agents: []string{"a-1"}}
			})
		require.NoError(t, err)
		require.Equal(t, name != "nothing", facts.Agents[0].Pinned, name)
	}
}

// Of several agents that could be stopped at once, work may be pinned to each.
func TestScalingSeesWorkPinnedToEachOfSeveralAgents(t *testing.T) {
	t.Parallel()
	agents := []string{"a-1", "a-2", "a-3", "a-4"}
	f := &pendingWork{pinned: map[string]int64{}}
	facts := scaling.ScalingFacts{}
	for _, a := range agents {
		facts.Agents = append(facts.Agents, scaling.AgentActivity{AgentID: a})
		if a != "a-3" {
			f.pinned[contract.PinnedQuery(a)] = 1
		}
	}
	decision, err := store.Store{Client: f}.Clusters().CompleteScaling(t.Context(),
		&cluster.Cluster{Config: api.ClusterConfig{Name: "c"}}, &facts, func() cluster.ScalingDecision {
			d := cluster.ScalingDecision{Change: api.ScaleDown}
			for _, a := range facts.Agents {
				if !a.Pinned && len(d.Agents) < 3 {
					d.Agents = append(d.Agents, a.AgentID)
				}
			}
			return d
		})
	require.NoError(t, err)
	require.Equal(t, []string{"a-3"}, decision.Agents)
}
