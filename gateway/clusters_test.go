package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const clustersPath = "/api/v1/agents/clusters"

func TestClusters(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := serve(t, f)
	created := answer[api.Cluster](t, do(h, http.MethodPost, clustersPath,
		`{"name":"web","min_agents":1,"desired_agents":2}`), http.StatusCreated)
	require.Equal(t, api.ActiveActive, created.ReplicationMode)
	require.Equal(t, api.ClusterCritical, created.Status)
	require.NotNil(t, created.CreatedAt)
	in := f.executions[contract.ClusterWorkflowID("web")].input.(contract.ClusterInput)
	require.Equal(t, 2, in.Config.DesiredAgents)
	require.Equal(t, api.DefaultMaxAgents, in.Config.MaxAgents)
	problem(t, do(h, http.MethodPost, clustersPath, `{"name":"web"}`), 409, protocol.CodeClusterExists)
	problem(t, do(h, http.MethodPost, clustersPath, `{"name":"w","min_agents":3,"desired_agents":2}`), 422,
		protocol.CodeInvalidRequest)
	problem(t, do(h, http.MethodPost, clustersPath, `{"name":"w","extra":"canary"}`), 422, protocol.CodeInvalidRequest)

	// No worker answers yet: the list still has it, with what it was created with.
	list := answer[struct{ Clusters []api.Cluster }](t, do(h, http.MethodGet, clustersPath, ""), http.StatusOK)
	require.Len(t, list.Clusters, 1)
	require.Equal(t, api.ClusterUnknown, list.Clusters[0].Status)
	require.Equal(t, 2, list.Clusters[0].DesiredAgents)
	problem(t, do(h, http.MethodGet, clustersPath+"/web", ""), 503, protocol.CodeUnavailable)

	f.withCluster(in.Config, cluster.Member{AgentID: "a-1", Status: api.AgentOnline},
		cluster.Member{AgentID: "a-2", Status: api.AgentSuspect})
	got := answer[api.Cluster](t, do(h, http.MethodGet, clustersPath+"/web", ""), http.StatusOK)
	require.Equal(t, api.ClusterDegraded, got.Status)
	require.Equal(t, 1, got.HealthyAgentCount)
	require.Equal(t, 2, got.AgentCount)
	problem(t, do(h, http.MethodGet, clustersPath+"/canary", ""), 404, protocol.CodeUnknownCluster)
	problem(t, do(h, http.MethodGet, clustersPath+"/canary/members", ""), 404, protocol.CodeUnknownCluster)
}

func TestChangeAndDeleteCluster(t *testing.T) {
	t.Parallel()
	f := newFake()
	state := &cluster.Cluster{Config: api.ClusterConfig{Name: "keyed", ReplicationMode: api.Sharded, Shards: 4},
		Members: []cluster.Member{{AgentID: "a-1", Status: api.AgentOnline}}}
	e := f.withClusterState(state)
	var forced bool
	e.update = func(name string, arg any) (any, error) {
		switch request := arg.(type) {
		case contract.ConfigureRequest:
			state.Config = request.ClusterConfig
			return contract.Done{}, nil
		case contract.DeleteRequest:
			if forced = request.Force; forced {
				return nil, nil
			}
		}
		return nil, temporal.NewNonRetryableApplicationError("refused", contract.Refused, nil)
	}
	h := serve(t, f)
	changed := answer[api.Cluster](t, do(h, http.MethodPut, clustersPath+"/keyed", `{"desired_agents":3}`),
		http.StatusOK)
	require.Equal(t, 3, changed.DesiredAgents)
	require.Equal(t, 4, state.Config.Shards, "what is fixed keeps its value")
	require.Equal(t, api.Sharded, state.Config.ReplicationMode)
	problem(t, do(h, http.MethodPut, clustersPath+"/keyed", `{"name":"other"}`), 422, protocol.CodeInvalidRequest)
	problem(t, do(h, http.MethodPut, clustersPath+"/canary", `{}`), 404, protocol.CodeUnknownCluster)

	problem(t, do(h, http.MethodDelete, clustersPath+"/keyed", ""), 409, protocol.CodeClusterNotEmpty)
	require.Equal(t, http.StatusNoContent, do(h, http.MethodDelete, clustersPath+"/keyed?force=true", "").Code)
	require.True(t, forced)
	problem(t, do(h, http.MethodDelete, clustersPath+"/canary", ""), 404, protocol.CodeUnknownCluster)
}

func TestSettingsOfFailover(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := serve(t, f)
	created := answer[api.Cluster](t, do(h, http.MethodPost, clustersPath, `{"name":"plain"}`), http.StatusCreated)
	require.Equal(t, api.Duration(3*time.Second), created.RoleLease)
	require.Equal(t, api.Duration(5*time.Minute), created.TransferTimeout)
	require.Equal(t, api.BrakePolicy{Share: .5, MinLost: 3, Window: api.Duration(10 * time.Second)}, created.Brake)

	body := `{"name":"tuned","role_lease":"2s","task_transfer_timeout":"00:01:00","brake":{"share":0.25,"min_lost":7,"window":"30s"}}`
	w := do(h, http.MethodPost, clustersPath, body)
	require.Contains(t, w.Body.String(), `"role_lease":"2s"`, "durations are text")
	created = answer[api.Cluster](t, w, http.StatusCreated)
	brake := api.BrakePolicy{Share: .25, MinLost: 7, Window: api.Duration(30 * time.Second)}
	require.Equal(t, brake, created.Brake)
	config := f.executions[contract.ClusterWorkflowID("tuned")].input.(contract.ClusterInput).Config
	require.Equal(t, brake, config.Brake)
	require.Equal(t, api.Duration(2*time.Second), config.RoleLease)
	require.Equal(t, api.Duration(time.Minute), config.TransferTimeout)
	for _, bad := range []string{`"role_lease":"10ms"`, `"role_lease":"soon"`, `"brake":{"share":2}`,
		`"brake":{"window":"1h"}`, `"brake":{"extra":1}`} {
		problem(t, do(h, http.MethodPost, clustersPath, `{"name":"bad",`+bad+`}`), 422, protocol.CodeInvalidRequest)
	}

	state := &cluster.Cluster{Config: config}
	f.withClusterState(state).update = func(_ string, arg any) (any, error) {
		state.Config = arg.(contract.ConfigureRequest).ClusterConfig
		return contract.Done{}, nil
	}
	changed := answer[api.Cluster](t, do(h, http.MethodPut, clustersPath+"/tuned",
		`{"role_lease":"3s","brake":{"share":1}}`), http.StatusOK)
	require.Equal(t, api.Duration(3*time.Second), state.Config.RoleLease)
	require.InDelta(t, 1, state.Config.Brake.Share, 0)
	require.Equal(t, 3, changed.Brake.MinLost, "what is left out has its default")
}

func TestReleaseBrake(t *testing.T) {
	t.Parallel()
	f := newFake()
	var got []contract.ReleaseBrakeRequest
	state := &cluster.Cluster{Config: api.ClusterConfig{Name: "web"},
		Brakes: cluster.Brakes{BrakeHolds: []cluster.BrakeHold{{Hub: "h1"}}}}
	f.withClusterState(state).update = func(name string, arg any) (any, error) {
		require.Equal(t, contract.ReleaseBrakeUpdate.Name, name)
		got = append(got, arg.(contract.ReleaseBrakeRequest))
		return nil, nil
	}
	h := serve(t, f)
	for _, body := range []string{`{"reason":"the rack burnt down"}`, ""} {
		require.JSONEq(t, `{"released":true}`, do(h, http.MethodPost, clustersPath+"/web/brake/release",
			body).Body.String())
	}
	require.Equal(t, []contract.ReleaseBrakeRequest{{Cluster: "web", Reason: "the rack burnt down"}, {Cluster: "web"}},
		got)
	state.BrakeHolds = nil
	require.JSONEq(t, `{"released":false}`, do(h, http.MethodPost, clustersPath+"/web/brake/release", "").Body.String())
	problem(t, do(h, http.MethodPost, clustersPath+"/canary/brake/release", ""), 404, protocol.CodeUnknownCluster)
	problem(t, do(h, http.MethodPost, clustersPath+"/web/brake/release", `{"why":"canary"}`), 422,
		protocol.CodeInvalidRequest)
	f.executions[contract.ClusterWorkflowID("web")].update = func(string, any) (any, error) {
		return nil, temporal.NewNonRetryableApplicationError("not now", contract.Refused, nil)
	}
	problem(t, do(h, http.MethodPost, clustersPath+"/web/brake/release", ""), 409, protocol.CodeConflict)
}

func TestRoles(t *testing.T) {
	t.Parallel()
	f := newFake()
	online := func(id string) cluster.Member {
		return cluster.Member{AgentID: id, Epoch: 1, Status: api.AgentOnline,
			AgentProfile: api.AgentProfile{MaxTasks: 1}}
	}
	show := func(c cluster.Cluster) {
		c.Config = c.Config.WithDefaults()
		f.withCluster(c.Config).query = func() (any, error) { return contract.ClusterView{Cluster: c}, nil }
	}
	show(cluster.Cluster{
		Config:  api.ClusterConfig{Name: "led", ReplicationMode: api.ActivePassive},
		Members: []cluster.Member{online("a-1"), online("a-2"), online("a-3")},
		Leader:  "a-2", LeaderEpoch: 9, Standbys: []string{"a-1"},
	})
	show(cluster.Cluster{
		Config:  api.ClusterConfig{Name: "keyed", ReplicationMode: api.Sharded, Shards: 3},
		Members: []cluster.Member{online("s-1"), online("s-2")},
		Shards:  []cluster.ShardOwner{{Owner: "s-1", Epoch: 4}, {From: "s-1", Epoch: 5}, {Owner: "s-1", Epoch: 6}},
	})
	h := serve(t, f)
	led := answer[api.Cluster](t, do(h, http.MethodGet, clustersPath+"/led", ""), http.StatusOK)
	require.Equal(t, "a-2", led.Leader)
	require.EqualValues(t, 9, led.LeaderEpoch)
	require.Equal(t, []string{"a-1"}, led.Standbys)
	require.Empty(t, led.ShardOwners)
	roles := map[string]api.Role{}
	for _, m := range answer[agentPage](t, do(h, http.MethodGet, clustersPath+"/led/members", ""),
		http.StatusOK).Members {
		roles[m.ID] = m.Role
	}
	require.Equal(t, map[string]api.Role{"a-1": api.RoleStandby, "a-2": api.RoleLeader, "a-3": api.RoleMember},
		roles)
	require.Equal(t, api.RoleLeader, answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/a-2", ""),
		http.StatusOK).Role)

	keyed := answer[api.Cluster](t, do(h, http.MethodGet, clustersPath+"/keyed", ""), http.StatusOK)
	require.Equal(t, 3, keyed.Shards)
	require.Equal(t, []api.ShardOwner{{Shard: 0, Owner: "s-1", Epoch: 4}, {Shard: 1, Epoch: 5},
		{Shard: 2, Owner: "s-1", Epoch: 6}}, keyed.ShardOwners)
	require.Equal(t, []int{0, 2}, answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/s-1", ""),
		http.StatusOK).Shards)
	require.Empty(t, answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/s-2", ""), http.StatusOK).Shards)
}

func TestEnsureClusters(t *testing.T) {
	t.Parallel()
	f := newFake()
	g := gateway.New(gateway.Options{Store: store.Store{Client: f}})
	for range 2 {
		require.NoError(t, g.EnsureClusters(t.Context(), []api.ClusterConfig{{Name: "a"}, {Name: "b"}}))
	}
	require.Len(t, f.executions, 2)
	require.ErrorContains(t, g.EnsureClusters(t.Context(), []api.ClusterConfig{{Name: "a", Shards: -1}}), "shards")
	f.fail = serviceerror.NewUnavailable("away")
	require.Error(t, g.EnsureClusters(t.Context(), []api.ClusterConfig{{Name: "c"}}))
}

type agentPage struct {
	Agents        []api.Agent `json:"agents"`
	Members       []api.Agent `json:"members"`
	NextPageToken string      `json:"next_page_token"`
}

func TestAgents(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "east"},
		cluster.Member{AgentID: "a-1", Instance: "new", Epoch: 2, Status: api.AgentOnline,
			AgentProfile: api.AgentProfile{Zone: "z1", Group: "g", MaxTasks: 4, Capabilities: []string{"gpu"}, PID: 7,
				Host: "h"}, Hub: "hub-1"},
		cluster.Member{AgentID: "a-2", Instance: "two", Status: api.AgentOffline,
			AgentProfile: api.AgentProfile{Zone: "z2"},
			StatusSince:  time.Unix(1, 0)})
	f.withCluster(api.ClusterConfig{Name: "west"}, cluster.Member{AgentID: "b-1", Instance: "b",
		Status: api.AgentOnline})
	beat := func(agent, instance string, used int32) *workerpb.WorkerHeartbeat {
		return &workerpb.WorkerHeartbeat{
			WorkerIdentity:        contract.AgentIdentity("east", agent),
			WorkerInstanceKey:     contract.AgentKey("east", agent, instance),
			HeartbeatTime:         timestamppb.New(time.Unix(1_800_000_000, 0)),
			HostInfo:              &workerpb.WorkerHostInfo{CurrentHostCpuUsage: .256},
			ActivityTaskSlotsInfo: &workerpb.WorkerSlotsInfo{CurrentUsedSlots: used, TotalProcessedTasks: 9},
		}
	}
	f.workers = []*workerpb.WorkerHeartbeat{beat("a-1", "new", 3), beat("a-1", "old", 1)}
	h := serve(t, f)
	ids := func(target string) []string {
		list := []string{}
		for _, a := range answer[agentPage](t, do(h, http.MethodGet, "/api/v1/agents"+target, ""),
			http.StatusOK).Agents {
			list = append(list, a.ID)
		}
		return list
	}
	for target, want := range map[string][]string{
		"": {"a-1", "a-2", "b-1"}, "?cluster=west": {"b-1"}, "?status=offline": {"a-2"}, "?zone=z1": {"a-1"},
		"?group=g":        {"a-1"},
		"?capability=gpu": {"a-1"}, "?capability=canary": {},
	} {
		require.Equal(t, want, ids(target), target)
	}
	problem(t, do(h, http.MethodGet, "/api/v1/agents?cluster=canary", ""), 404, protocol.CodeUnknownCluster)

	first := answer[agentPage](t, do(h, http.MethodGet, "/api/v1/agents?page_size=2", ""), http.StatusOK)
	require.Len(t, first.Agents, 2)
	require.Equal(t, []string{"b-1"}, ids("?page_size=2&page_token="+first.NextPageToken))

	a := answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/a-1", ""), http.StatusOK)
	require.Equal(t, "east", a.Cluster)
	require.Equal(t, 3, *a.Running, "of its present process")
	require.InDelta(t, 25.6, *a.CPUPercent, .01)
	require.NotNil(t, a.LastHeartbeat)
	require.Equal(t, "b-1", answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/b-1", ""), http.StatusOK).ID,
		"found through the clusters")
	problem(t, do(h, http.MethodGet, "/api/v1/agents/canary", ""), 404, protocol.CodeUnknownAgent)

	f.workersErr = errors.New("canary")
	a = answer[api.Agent](t, do(h, http.MethodGet, "/api/v1/agents/a-1", ""), http.StatusOK)
	require.Nil(t, a.Running, "the registry is only an extra")
	members := answer[agentPage](t, do(h, http.MethodGet, clustersPath+"/east/members?page_size=1", ""), http.StatusOK)
	require.Len(t, members.Members, 1)
	require.NotEmpty(t, members.NextPageToken)
}

// TestPathsOfTheHubFitBeside registers the agent protocol's paths on the same server: the router takes them all, and
// each request reaches its own.
func TestPathsOfTheHubFitBeside(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withTask(contract.TaskState{Status: api.TaskReview})
	s := httpapi.New(httpapi.Options{})
	type hubOutput struct{ Body struct{ Hub string } }
	register := func(id, method, path string) {
		huma.Register(s.API(), huma.Operation{OperationID: id, Method: method, Path: path},
			func(context.Context, *struct{}) (*hubOutput, error) {
				out := &hubOutput{}
				out.Body.Hub = id
				return out, nil
			})
	}
	register("register", http.MethodPost, protocol.RegisterPath)
	register("poll", http.MethodPost, protocol.PollPath)
	gateway.New(gateway.Options{Store: store.Store{Client: f}}).Register(s.API())
	register("result", http.MethodPost, protocol.ResultPath)
	register("goodbye", http.MethodDelete, protocol.SessionPath)
	for request, want := range map[[2]string]string{
		{http.MethodPost, "/api/v1/agents/register"}:               "register",
		{http.MethodPost, "/api/v1/agents/a-1/poll"}:               "poll",
		{http.MethodPost, "/api/v1/agents/a-1/tasks/t-1/result"}:   "result",
		{http.MethodPost, "/api/v1/agents/task-1/tasks/t1/result"}: "result",
		{http.MethodDelete, "/api/v1/agents/cluster/session"}:      "goodbye",
	} {
		require.Contains(t, do(s.Handler(), request[0], request[1], "").Body.String(), `"`+want+`"`, request)
	}
	require.Equal(t, "t-1", answer[api.Task](t, do(s.Handler(), http.MethodGet, tasksPath+"/t-1", ""),
		http.StatusOK).ID)
	for _, word := range api.ReservedAgentIDs {
		require.Error(t, api.ValidateAgentID(word))
	}
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
		f.executions[contract.TaskWorkflowID("t-1")].info.GetStatus())
}
