package activities_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	querypb "go.temporal.io/api/query/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// fakeCluster is a Temporal with one cluster. Methods that are not used are nil and panic.
type fakeCluster struct {
	client.Client
	status enumspb.WorkflowExecutionStatus
	err    error
	view   contract.ClusterView
	opened [][]string
}

func (f *fakeCluster) QueryWorkflowWithOptions(
	context.Context, *client.QueryWorkflowWithOptionsRequest,
) (*client.QueryWorkflowWithOptionsResponse, error) {
	answer := &client.QueryWorkflowWithOptionsResponse{QueryResult: viewValue{f.view}}
	if f.status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		answer = &client.QueryWorkflowWithOptionsResponse{QueryRejected: &querypb.QueryRejected{}}
	}
	return answer, f.err
}

func (f *fakeCluster) UpdateWorkflow(
	_ context.Context, o client.UpdateWorkflowOptions,
) (client.WorkflowUpdateHandle, error) {
	f.opened = append(f.opened, o.Args[0].(contract.OpenLaneRequest).Capabilities)
	return doneHandle{}, nil
}

type viewValue struct{ view contract.ClusterView }

func (viewValue) HasValue() bool { return true }
func (v viewValue) Get(into any) error {
	text, err := json.Marshal(v.view)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func TestPlaceTask(t *testing.T) {
	t.Parallel()
	sharded := api.ClusterConfig{Name: "c", ReplicationMode: api.Sharded, Shards: 8}
	for name, c := range map[string]struct {
		config api.ClusterConfig
		in     contract.PlaceTaskInput
		want   contract.TaskPlace
		opened int
	}{
		"the cluster's": {api.ClusterConfig{Name: "c"}, contract.PlaceTaskInput{ShardKey: "k"},
			contract.TaskPlace{Lane: "lane/c"}, 0},
		"an agent's": {sharded, contract.PlaceTaskInput{Agent: "a-1", ShardKey: "k"},
			contract.TaskPlace{Lane: "lane/c/agent/a-1", Sharded: true}, 0},
		"a shard's": {sharded, contract.PlaceTaskInput{ShardKey: "k"},
			contract.TaskPlace{Lane: contract.LaneQueue("c", task.ShardLane(task.ShardOf("k", 8))), Sharded: true}, 0},
		"capabilities, open": {api.ClusterConfig{Name: "c"},
			contract.PlaceTaskInput{RequiredCapabilities: []string{"ssd", "gpu"}},
			contract.TaskPlace{Lane: "lane/c/cap/gpu+ssd"}, 0},
		"capabilities, to open": {api.ClusterConfig{Name: "c"},
			contract.PlaceTaskInput{RequiredCapabilities: []string{"tape"}},
			contract.TaskPlace{Lane: "lane/c/cap/tape"}, 1},
		"shards, no capabilities": {sharded, contract.PlaceTaskInput{ShardKey: "k",
			RequiredCapabilities: []string{"tape"}},
			contract.TaskPlace{Lane: contract.LaneQueue("c", task.ShardLane(task.ShardOf("k", 8))),
				Sharded: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeCluster{status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}
			f.view.Config, f.view.CapabilitySets = c.config.WithDefaults(), [][]string{{"gpu", "ssd"}}
			c.in.Cluster = "c"
			c.want.Defaults = f.view.Config.TaskDefaults
			c.want.DeadLetterRetention = f.view.Config.DeadLetterRetention
			got, err := (&activities.Control{Client: f}).PlaceTask(t.Context(), c.in)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Len(t, f.opened, c.opened)
		})
	}
}

// A queue of an agent that there is not stays in Temporal's memory for minutes, so work for many such is refused, whether
// a schedule makes it, or an event or the step of a run.
func TestWorkForAgentsThatThereAreNotIsBounded(t *testing.T) {
	t.Parallel()
	f := &fakeCluster{status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}
	f.view.Members = []cluster.Member{{AgentID: "here"}}
	control := &activities.Control{Client: f}
	places := activities.ClusterPlaces{Control: control}
	place := func(tenant, agent string, at time.Time) string {
		_, problem, err := places.Place(t.Context(), "t-1", api.TaskSpec{Cluster: "c", Tenant: tenant, Agent: agent,
			StartAt: at})
		require.NoError(t, err)
		return problem
	}
	for i := range 256 {
		require.Empty(t, place("acme", fmt.Sprint("ghost-", i), time.Now().Add(time.Hour)))
	}
	require.Contains(t, place("acme", "ghost-256", time.Time{}), "many agents that their clusters do not know")
	require.Empty(t, place("acme", "ghost-7", time.Time{}), "it is counted already")
	require.Empty(t, place("acme", "here", time.Time{}))
	require.Empty(t, place("beta", "ghost-256", time.Time{}))
	_, err := control.PlaceTask(t.Context(), contract.PlaceTaskInput{Cluster: "c", Tenant: "acme", Agent: "ghost-256"})
	require.Equal(t, store.Refused, store.KindOf(err))
}

func TestPlaceTaskWithoutACluster(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]*fakeCluster{
		"never was": {err: serviceerror.NewNotFound("no such workflow")},
		"deleted":   {status: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED},
	} {
		_, err := (&activities.Control{Client: f}).PlaceTask(t.Context(), contract.PlaceTaskInput{Cluster: "c"})
		var refused *temporal.ApplicationError
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, contract.UnknownCluster, refused.Type())
		require.True(t, refused.NonRetryable())
	}
	others := &fakeCluster{status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}
	others.view.Config = api.ClusterConfig{Name: "c", Tenants: []string{"beta"}}
	needs := api.TaskSpec{Cluster: "c", Tenant: "acme", RequiredCapabilities: []string{"tape"}}
	_, err := (&activities.Control{Client: others}).PlaceTask(t.Context(), contract.PlaceTaskInput{Cluster: needs.Cluster,
		Tenant: needs.Tenant, RequiredCapabilities: needs.RequiredCapabilities})
	require.ErrorContains(t, err, "there is no cluster c")
	places := activities.ClusterPlaces{Control: &activities.Control{Client: others}}
	_, problem, err := places.Place(t.Context(), "t-1", needs)
	require.NoError(t, err)
	require.Equal(t, "there is no cluster c", problem)
	require.Empty(t, others.opened, "no lane is opened in a cluster that is for others")
	needs.Tenant = "beta"
	_, problem, err = places.Place(t.Context(), "t-1", needs)
	require.NoError(t, err)
	require.Empty(t, problem)
	require.Len(t, others.opened, 1)

	_, err = (&activities.Control{Client: &fakeCluster{err: serviceerror.NewUnavailable("away")}}).PlaceTask(
		t.Context(), contract.PlaceTaskInput{Cluster: "c"})
	var refused *temporal.ApplicationError
	require.NotErrorAs(t, err, &refused, "this is tried again")
	require.Error(t, err)
}
