package activities_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdktestsuite "go.temporal.io/sdk/testsuite"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// movingTask is a Temporal with one open task, which moves after a time.
type movingTask struct {
	client.Client
	attempts []api.Attempt
	moves    time.Time
}

func (f *movingTask) DescribeWorkflowExecution(
	context.Context, string, string,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: contract.TaskWorkflowID("t")},
		Status:    enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}}, nil
}

func (f *movingTask) QueryWorkflow(
	context.Context, string, string, string, ...any,
) (converter.EncodedValue, error) {
	state := contract.TaskState{Status: api.TaskQueued, Attempts: f.attempts}
	if !time.Now().Before(f.moves) {
		state.Attempts = append(slices.Clip(f.attempts),
			api.Attempt{Number: 9, AgentID: "b", Epoch: 8, StartedAt: &f.moves})
	}
	text, err := converter.GetDefaultDataConverter().ToPayloads(state)
	return client.NewValue(text), err
}

// A transfer counts the attempts that began, and is watched for as long as the cluster's configuration says.
func TestAwaitTransfers(t *testing.T) {
	t.Parallel()
	returned := func(number int) api.Attempt {
		return api.Attempt{Number: number, Outcome: api.AttemptReturned}
	}
	lost := func(number int) api.Attempt {
		return api.Attempt{Number: number, AgentID: "a", Outcome: api.AttemptLost}
	}
	for name, c := range map[string]struct {
		attempts []api.Attempt
		held     int
		moves    time.Duration // when it begins elsewhere
		takes    time.Duration // at most
		retries  int
		missing  string
	}{
		"the first":                     {[]api.Attempt{lost(1)}, 1, 0, 0, 1, ""},
		"after two that nobody began":   {[]api.Attempt{returned(1), returned(2), lost(3)}, 3, 0, 0, 1, ""},
		"after another lost one":        {[]api.Attempt{lost(1), returned(2), lost(3)}, 3, 0, 0, 2, ""},
		"it was on its way, not begun":  {[]api.Attempt{lost(1), returned(2)}, 2, 0, 0, 1, ""},
		"later deliveries do not count": {[]api.Attempt{lost(1), returned(2)}, 1, 0, 0, 1, ""},
		"one took it and gave it back": {[]api.Attempt{lost(1), {Number: 2, AgentID: "c", Outcome: api.AttemptReturned}},
			1, 50 * time.Second, time.Minute, 1, ""},
		"it moves in time": {[]api.Attempt{lost(1)}, 1, 50 * time.Second, time.Minute, 1, ""},
		"it moves too late": {[]api.Attempt{lost(1)}, 1, 70 * time.Second, 62 * time.Second, 1,
			"1 of 1 tasks wait for an agent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				a := &activities.Control{Client: &movingTask{attempts: c.attempts, moves: began.Add(c.moves)}}
				var suite sdktestsuite.WorkflowTestSuite
				env := suite.NewTestActivityEnvironment()
				env.RegisterActivity(a.AwaitTransfers)
				value, err := env.ExecuteActivity(a.AwaitTransfers, contract.AwaitTransfersInput{FailedAgent: "a",
					Attempts: []cluster.HeldAttempt{{TaskID: "t", Attempt: c.held}}, Timeout: api.Duration(time.Minute)})
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(began), c.takes)
				var result contract.AwaitTransfersResult
				require.NoError(t, value.Get(&result))
				require.Equal(t, c.missing, result.Incomplete)
				require.Len(t, result.Transfers, 1)
				require.Equal(t, c.retries, result.Transfers[0].RetryCount)
				require.Equal(t, c.missing == "", result.Transfers[0].To == "b")
			})
		})
	}
}

// A task that is held for its agent has moved once another has it, or when its agent is back with it. A watch does not
// fail that is over before.
func TestAwaitTransfersOfHeldWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grace, moves, takes time.Duration
		to, why             string
	}{
		"its agent comes back": {30 * time.Second, time.Hour, 37 * time.Second, "", "its agent came back with it"},
		"it goes on elsewhere": {30 * time.Second, 31 * time.Second, 33 * time.Second, "b", ""},
		"longer than it watches": {time.Hour, 2 * time.Hour, 62 * time.Second, "",
			"it is held for its agent until 2000-01-01T01:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				a := &activities.Control{Client: &movingTask{moves: began.Add(c.moves),
					attempts: []api.Attempt{{Number: 1, AgentID: "a"}}}}
				var suite sdktestsuite.WorkflowTestSuite
				env := suite.NewTestActivityEnvironment()
				env.RegisterActivity(a.AwaitTransfers)
				value, err := env.ExecuteActivity(a.AwaitTransfers, contract.AwaitTransfersInput{FailedAgent: "a",
					Timeout:  api.Duration(time.Minute),
					Attempts: []cluster.HeldAttempt{{TaskID: "t", Attempt: 1, AwaitedUntil: began.Add(c.grace)}}})
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(began), c.takes)
				require.Greater(t, time.Since(began), min(c.grace, 50*time.Second))
				var result contract.AwaitTransfersResult
				require.NoError(t, value.Get(&result))
				require.Empty(t, result.Incomplete)
				require.Equal(t, c.to, result.Transfers[0].To)
				require.Equal(t, c.why, result.Transfers[0].Why)
			})
		})
	}
}

// rolesOf is a Temporal with one cluster, whose only shard gets an owner after a time. Each look at it takes a while.
type rolesOf struct {
	client.Client
	view  contract.ClusterView
	owned time.Time // zero: never
	looks atomic.Int32
}

func (f *rolesOf) QueryWorkflowWithOptions(
	context.Context, *client.QueryWorkflowWithOptionsRequest,
) (*client.QueryWorkflowWithOptionsResponse, error) {
	f.looks.Add(1)
	<-time.After(300 * time.Millisecond)
	view := f.view
	view.Shards = cluster.Shards{{}}
	if !f.owned.IsZero() && time.Now().After(f.owned) {
		view.Shards[0].Owner = "b"
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(view)
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: client.NewValue(payloads)}, err
}

// Hundreds of agents with shards may be lost at once, and each look at a large cluster costs much.
func TestWatchesOfAClusterShareTheirLooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status api.AgentStatus // of the agent that may take over
		owned  time.Duration
		takes  time.Duration // at most
		looks  int32         // at most: 0.3 s each, and three times as long between them
		want   contract.AwaitTransfersResult
	}{
		"they move": {api.AgentOnline, 12 * time.Second, 16 * time.Second, 14, contract.AwaitTransfersResult{
			Shards: []api.ShardMove{{From: "a", To: "b"}}}},
		"they do not": {api.AgentOnline, 0, 63 * time.Second, 53, contract.AwaitTransfersResult{
			Incomplete: "not every shard has a new owner"}},
		"nobody is online": {api.AgentOffline, 0, time.Second, 1, contract.AwaitTransfersResult{NoTarget: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, state := time.Now(), &rolesOf{}
				state.view.Members = []cluster.Member{{AgentID: "b", Status: c.status}}
				if c.owned > 0 {
					state.owned = began.Add(c.owned)
				}
				a := &activities.Control{Client: state}
				var watches sync.WaitGroup
				for range 50 {
					watches.Go(func() {
						var suite sdktestsuite.WorkflowTestSuite
						env := suite.NewTestActivityEnvironment()
						env.RegisterActivity(a.AwaitTransfers)
						value, err := env.ExecuteActivity(a.AwaitTransfers, contract.AwaitTransfersInput{Cluster: "c",
							FailedAgent: "a", Shards: []int{0}, Timeout: api.Duration(time.Minute)})
						if !assert.NoError(t, err) {
							return
						}
						var result contract.AwaitTransfersResult
						assert.NoError(t, value.Get(&result))
						assert.Equal(t, c.want, result)
						assert.LessOrEqual(t, time.Since(began), c.takes)
					})
				}
				watches.Wait()
				assert.LessOrEqual(t, state.looks.Load(), c.looks)
			})
		})
	}
}
