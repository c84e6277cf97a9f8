package activities_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	querypb "go.temporal.io/api/query/v1"
	"go.temporal.io/api/serviceerror"
	workerpb "go.temporal.io/api/worker/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// fakeFleet is a Temporal with clusters and a live registry. Methods that are not used are nil and panic.
type fakeFleet struct {
	client.Client
	names  []string
	views  map[string]contract.ClusterView
	errs   map[string]error // of queries, by cluster
	closed map[string]bool
	live   []*workerpb.WorkerHeartbeat
}

type service struct {
	workflowservice.WorkflowServiceClient
	workers func() []*workerpb.WorkerHeartbeat
}

func (s service) ListWorkers(
	context.Context, *workflowservice.ListWorkersRequest, ...grpc.CallOption,
) (*workflowservice.ListWorkersResponse, error) {
	answer := &workflowservice.ListWorkersResponse{}
	for _, h := range s.workers() {
		answer.WorkersInfo = append(answer.WorkersInfo, &workerpb.WorkerInfo{WorkerHeartbeat: h}) //nolint:staticcheck // as Temporal answers
	}
	return answer, nil
}

func (f *fakeFleet) WorkflowService() workflowservice.WorkflowServiceClient {
	return service{workers: func() []*workerpb.WorkerHeartbeat { return f.live }}
}

func (f *fakeFleet) ListWorkflow(
	context.Context, *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	answer := &workflowservice.ListWorkflowExecutionsResponse{}
	for _, name := range f.names {
		answer.Executions = append(answer.Executions, &workflowpb.WorkflowExecutionInfo{
			Execution: &commonpb.WorkflowExecution{WorkflowId: contract.ClusterWorkflowID(name)}})
	}
	return answer, nil
}

func (f *fakeFleet) QueryWorkflowWithOptions(
	_ context.Context, r *client.QueryWorkflowWithOptionsRequest,
) (*client.QueryWorkflowWithOptionsResponse, error) {
	name, _ := contract.ClusterOfWorkflowID(r.WorkflowID)
	view, known := f.views[name]
	switch {
	case f.errs[name] != nil:
		return nil, f.errs[name]
	case f.closed[name]:
		return &client.QueryWorkflowWithOptionsResponse{QueryRejected: &querypb.QueryRejected{}}, nil
	case !known:
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: viewValue{view}}, nil
}

func TestFacts(t *testing.T) {
	t.Parallel()
	member := func(id string) cluster.Member {
		return cluster.Member{AgentID: id, Instance: id + "-2", Status: api.AgentOnline,
			AgentProfile: api.AgentProfile{MaxTasks: 4}}
	}
	entry := func(cluster, agent, instance string, used int32) *workerpb.WorkerHeartbeat {
		return &workerpb.WorkerHeartbeat{
			WorkerIdentity: contract.AgentIdentity(cluster, agent), WorkerInstanceKey: instance,
			ActivityTaskSlotsInfo: &workerpb.WorkerSlotsInfo{CurrentUsedSlots: used, CurrentAvailableSlots: 4 - used,
				TotalProcessedTasks: 9, TotalFailedTasks: 2},
			HostInfo: &workerpb.WorkerHostInfo{CurrentHostCpuUsage: 0.5},
			Plugins:  []*workerpb.PluginInfo{{Name: "other"}, contract.HealthPlugin(api.HealthDegraded, 0.85)},
		}
	}
	view := func(name string, members ...cluster.Member) contract.ClusterView {
		return contract.ClusterView{Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: name}, Members: members}}
	}
	f := &fakeFleet{
		names: []string{"z", "a", "deleted", "gone", "silent"},
		views: map[string]contract.ClusterView{"z": view("z"), "a": view("a", member("a-1"), member("a-2")),
			"deleted": view("deleted")},
		closed: map[string]bool{"deleted": true},
		errs:   map[string]error{"silent": errors.New("no worker")},
		live:   []*workerpb.WorkerHeartbeat{entry("a", "a-1", "a-1-1", 4), entry("a", "a-1", "a-1-2", 3)},
	}
	reader := store.Store{Client: f, Namespace: "default"}.Clusters()
	facts, err := reader.Facts(t.Context())
	require.NoError(t, err)
	require.Len(t, facts.Clusters, 2)
	require.Equal(t, []string{"silent"}, facts.Silent)
	require.Equal(t, "a", facts.Clusters[0].Config.Name)
	require.Len(t, facts.Clusters[0].Live, 1, "only of present processes")
	got := facts.Clusters[0].Live["a-1"]
	require.Equal(t, []int{3, 1, 9, 2}, []int{got.Running, got.FreeSlots, got.Processed, got.Failed})
	require.InDelta(t, 50, *got.CPUPercent, 0.01)
	require.Equal(t, api.HealthDegraded, got.Health)
	require.InDelta(t, 0.85, got.Score, 1e-9)

	facts, err = reader.Facts(t.Context(), "z", "nowhere")
	require.NoError(t, err)
	require.Len(t, facts.Clusters, 1)
	require.Empty(t, facts.Silent)
}
