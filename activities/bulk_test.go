package activities_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// fakeTasks is a Temporal with task workflows in memory. Methods that are not used are nil and panic.
type fakeTasks struct {
	client.Client
	mu      sync.Mutex
	tasks   map[string]*fakeTask
	order   []string // as visibility lists them
	updates []client.UpdateWorkflowOptions
	lists   []*workflowservice.ListWorkflowExecutionsRequest
}

type fakeTask struct {
	labels []string
	status enumspb.WorkflowExecutionStatus
	begun  bool
	errs   []error // of the first updates
}

func newTasks(ids ...string) *fakeTasks {
	f := &fakeTasks{tasks: map[string]*fakeTask{}, order: ids}
	for _, id := range ids {
		f.tasks[id] = &fakeTask{status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}
	}
	return f
}

func (f *fakeTasks) info(id string) *workflowpb.WorkflowExecutionInfo {
	labels, _ := converter.GetDefaultDataConverter().ToPayload(f.tasks[id].labels)
	return &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: contract.TaskWorkflowID(id)}, Status: f.tasks[id].status,
		SearchAttributes: &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{contract.AttrLabels.GetName(): labels}},
	}
}

func (f *fakeTasks) ListWorkflow(
	_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists = append(f.lists, r)
	answer := &workflowservice.ListWorkflowExecutionsResponse{NextPageToken: []byte("next")}
	for _, id := range f.order {
		answer.Executions = append(answer.Executions, f.info(id))
	}
	return answer, nil
}

func (f *fakeTasks) DescribeWorkflowExecution(
	_ context.Context, id, _ string,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, _ = contract.TaskOfWorkflowID(id)
	task := f.tasks[id]
	if task == nil {
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	state := enumspb.PENDING_ACTIVITY_STATE_SCHEDULED
	if task.begun {
		state = enumspb.PENDING_ACTIVITY_STATE_STARTED
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: f.info(id),
		PendingActivities: []*workflowpb.PendingActivityInfo{
			{ActivityType: &commonpb.ActivityType{Name: contract.RunTaskActivity.Name}, State: state}}}, nil
}

// UpdateWorkflow ends the task, as a cancellation does.
func (f *fakeTasks) UpdateWorkflow(
	_ context.Context, o client.UpdateWorkflowOptions,
) (client.WorkflowUpdateHandle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updates = append(f.updates, o)
	id, _ := contract.TaskOfWorkflowID(o.WorkflowID)
	task := f.tasks[id]
	if task == nil || task.status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, serviceerror.NewNotFound("workflow execution already completed")
	}
	if len(task.errs) > 0 {
		err := task.errs[0]
		task.errs = task.errs[1:]
		return nil, err
	}
	task.status = enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED
	return doneHandle{}, nil
}

// CancelWorkflow ends the task by Temporal's own request.
func (f *fakeTasks) CancelWorkflow(_ context.Context, id, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, _ = contract.TaskOfWorkflowID(id)
	f.tasks[id].status = enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED
	return nil
}

func (f *fakeTasks) GetWorkflowUpdateHandle(o client.GetWorkflowUpdateHandleOptions) client.WorkflowUpdateHandle {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.updates, func(u client.UpdateWorkflowOptions) bool {
		return u.WorkflowID == o.WorkflowID && u.UpdateID == o.UpdateID
	}) {
		return doneHandle{}
	}
	return doneHandle{err: serviceerror.NewNotFound("no such update")}
}

type doneHandle struct {
	client.WorkflowUpdateHandle
	err error
}

func (h doneHandle) Get(context.Context, any) error { return h.err }

// runPage runs the activity with what the try before had reported, if there was one.
func runPage(t *testing.T, f *fakeTasks, in contract.BulkPageInput, heartbeat any) (contract.BulkPageResult, error) {
	t.Helper()
	var suite sdktestsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	bulks := &activities.Control{Client: f, Namespace: "default"}
	env.RegisterActivityWithOptions(bulks.BulkPage, activity.RegisterOptions{Name: contract.BulkPageActivity.Name})
	if heartbeat != nil {
		env.SetHeartbeatDetails(heartbeat)
	}
	value, err := env.ExecuteActivity(contract.BulkPageActivity.Name, in)
	var result contract.BulkPageResult
	if err == nil {
		require.NoError(t, value.Get(&result))
	}
	return result, err
}

func cancelling(filter api.TaskFilter) contract.BulkPageInput {
	return contract.BulkPageInput{Bulk: "b-1", Token: []byte("before"),
		Spec: contract.BulkSpec{Action: api.BulkCancel, Filter: filter, Reason: "wrong input"}}
}

func TestBulkPage(t *testing.T) {
	t.Parallel()
	f := newTasks("queued", "running", "other-label", "refuses", "comes-and-goes", "broken", "full")
	for id, task := range f.tasks {
		task.labels = []string{"env=prod"}
		task.begun = id == "running"
	}
	f.tasks["other-label"].labels = []string{"env=PROD"} // SQLite finds it all the same
	f.tasks["refuses"].errs = []error{temporal.NewNonRetryableApplicationError("the task is being cancelled",
		contract.Refused, nil)}
	f.tasks["comes-and-goes"].errs = []error{serviceerror.NewUnavailable("canary"),
		serviceerror.NewWorkflowNotReady("canary")}
	f.tasks["full"].errs = []error{serviceerror.NewFailedPrecondition(
		"The limit on the total number of distinct updates in this workflow has been reached (2000).")}
	f.tasks["broken"].errs = []error{errors.New("canary")}
	in := cancelling(api.TaskFilter{Status: api.TaskQueued, Labels: map[string]string{"env": "prod"}})
	result, err := runPage(t, f, in, nil)
	require.NoError(t, err)
	require.Equal(t, "next", string(result.Next))
	c := result.Counts
	require.Equal(t, []int{5, 3, 1, 1}, []int{c.Matched, c.Done, c.Skipped, c.Failed})
	require.ElementsMatch(t, []api.BulkExample{
		{TaskID: "refuses", Outcome: api.BulkTaskSkipped, Reason: "the task is being cancelled"},
		{TaskID: "broken", Outcome: api.BulkTaskFailed, Reason: "it failed on our side; the worker's log says why"},
	}, c.Examples)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, f.tasks["running"].status, "what runs was not meant")
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, f.tasks["other-label"].status)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, f.tasks["full"].status, "though it takes no updates")
	require.Equal(t, in.Spec.Query(), f.lists[0].GetQuery())
	require.Equal(t, "before", string(f.lists[0].GetNextPageToken()))
	for _, u := range f.updates {
		require.Equal(t, contract.BulkUpdateID("b-1"), u.UpdateID)
		require.Equal(t, contract.CancelRequest{Reason: "wrong input"}, u.Args[0])
	}
}

// A try goes on with the page of the try before, though visibility shows another by now.
func TestBulkPageGoesOn(t *testing.T) {
	t.Parallel()
	f := newTasks("a", "b", "new")
	heartbeat := map[string]any{"ids": []string{"a", "b", "gone"}, "next": []byte("kept"),
		"outcomes": map[string]api.BulkExample{
			"a": {TaskID: "a", Outcome: api.BulkTaskDone}, "gone": {TaskID: "gone", Outcome: api.BulkTaskSkipped,
				Reason: "the task has ended"}}}
	result, err := runPage(t, f, cancelling(api.TaskFilter{Type: "x"}), heartbeat)
	require.NoError(t, err)
	require.Equal(t, "kept", string(result.Next))
	require.Equal(t, []int{3, 2, 1, 0}, []int{result.Counts.Matched, result.Counts.Done, result.Counts.Skipped,
		result.Counts.Failed})
	require.Empty(t, f.lists)
	require.Len(t, f.updates, 1, "only the task of which nothing was known is asked")
	require.Equal(t, contract.TaskWorkflowID("b"), f.updates[0].WorkflowID)
}

func TestBulkPageOfIDs(t *testing.T) {
	t.Parallel()
	f := newTasks("open", "closed")
	f.tasks["closed"].status = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	in := cancelling(api.TaskFilter{})
	in.IDs = []string{"open", "closed", "nobody", "open"}
	result, err := runPage(t, f, in, nil)
	require.NoError(t, err)
	require.Empty(t, result.Next)
	require.Equal(t, []int{3, 1, 1, 1}, []int{result.Counts.Matched, result.Counts.Done, result.Counts.Skipped,
		result.Counts.Failed})
}
