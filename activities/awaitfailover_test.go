package activities_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// failoverRun is one look at the workflow of a failover; a zero start: there is none.
type failoverRun struct {
	began   time.Time
	running bool
}

// fakeFailover is the workflow of a failover, look by look.
type fakeFailover struct {
	fakeFleet
	looks []failoverRun
	asked string // the workflow that was looked at last
}

func (f *fakeFailover) DescribeWorkflowExecution(
	_ context.Context, id, _ string,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	f.asked = id
	now := f.looks[0]
	if len(f.looks) > 1 {
		f.looks = f.looks[1:]
	}
	if now.began.IsZero() {
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	status := enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	if now.running {
		status = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{RunId: "r"}, Status: status, StartTime: timestamppb.New(now.began)}}, nil
}

func (f *fakeFailover) GetWorkflowHistory(
	context.Context, string, string, bool, enumspb.HistoryEventFilterType,
) client.HistoryEventIterator {
	record, _ := converter.GetDefaultDataConverter().ToPayloads(api.FailoverRecord{Status: api.FailoverSucceeded})
	return &oneEvent{event: &historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
			WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{Result: record}}}}
}

type oneEvent struct{ event *historypb.HistoryEvent }

func (o *oneEvent) HasNext() bool { return o.event != nil }

func (o *oneEvent) Next() (event *historypb.HistoryEvent, err error) {
	event, o.event = o.event, nil
	return event, nil
}

// Healing awaits the failover that it asked for, or the one that was under way then.
func TestAwaitFailover(t *testing.T) {
	t.Parallel()
	asked := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when a bubble begins
	before, after := asked.Add(-time.Second), asked.Add(time.Second)
	for name, c := range map[string]struct {
		looks   []failoverRun
		refused string
	}{
		"it is begun and ends":               {looks: []failoverRun{{}, {after, true}, {after, false}}},
		"it had ended by the first look":     {looks: []failoverRun{{after, false}}},
		"one is under way":                   {looks: []failoverRun{{before, true}, {before, false}}},
		"none is begun":                      {looks: []failoverRun{{}}, refused: "did not begin the failover"},
		"only one before it was asked ended": {looks: []failoverRun{{before, false}}, refused: "did not begin the failover"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fakeFailover{looks: c.looks, fakeFleet: fakeFleet{views: map[string]contract.ClusterView{"c": {
					Cluster: cluster.Cluster{Members: []cluster.Member{{AgentID: "a", Epoch: 7, Status: api.AgentOnline, Hub: "h",
						Failovers: 2,
						Health:    &cluster.MemberHealth{Level: api.HealthFailed}},
						{AgentID: "b", Status: api.AgentOnline, Hub: "h"}}}}}}}
				a := &activities.Control{Client: f, Namespace: "default"}
				var suite sdktestsuite.WorkflowTestSuite
				env := suite.NewTestActivityEnvironment()
				env.RegisterActivity(a.AwaitFailover)
				value, err := env.ExecuteActivity(a.AwaitFailover, contract.AwaitFailoverInput{Cluster: "c", AgentID: "a",
					Epoch: 7, After: asked})
				if c.refused != "" {
					require.ErrorContains(t, err, c.refused)
					return
				}
				require.NoError(t, err)
				var record api.FailoverRecord
				require.NoError(t, value.Get(&record))
				require.Equal(t, api.FailoverSucceeded, record.Status)
				require.Equal(t, contract.FailoverWorkflowID("c:a:7.2"), f.asked)
			})
		})
	}
}
