package gateway_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// TestChangesThatMayYetBeMade: an update that Temporal has and no worker took is made when a worker comes, so nobody
// may be told that it failed.
func TestChangesThatMayYetBeMade(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "web"}).update = func(string, any) (any, error) {
		return nil, client.NewWorkflowUpdateServiceTimeoutOrCanceledError(context.DeadlineExceeded)
	}
	h := serve(t, f)
	p := problem(t, do(h, http.MethodPost, clustersPath+"/web/pause", ""), 503, protocol.CodeUnavailable)
	require.Contains(t, p.Detail, "may be made as soon as one answers")
	// Of a submission nothing is left when its lane could not be opened.
	p = problem(t, do(h, http.MethodPost, tasksPath, `{"type":"x","cluster":"web","required_capabilities":["gpu"]}`),
		503, protocol.CodeUnavailable)
	require.NotContains(t, p.Detail, "may be made")
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	f := newFake()
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	e := f.withClusterState(&cluster.Cluster{Config: api.ClusterConfig{Name: "web"},
		Pauses: []cluster.Pause{{Since: since, Reason: "disks"}, {Lane: "cap/gpu", Since: since}}})
	var asked []any
	e.update = func(name string, arg any) (any, error) {
		asked = append(asked, name, arg)
		return contract.Done{}, nil
	}
	h := serve(t, f)
	got := answer[api.Cluster](t, do(h, http.MethodPost, clustersPath+"/web/pause",
		`{"lane":"cap/gpu+arm","reason":"driver"}`), http.StatusOK)
	require.Equal(t, &api.Pause{Since: since, Reason: "disks"}, got.Paused)
	require.Equal(t, []api.PausedLane{{Lane: "cap/gpu", Pause: api.Pause{Since: since}}}, got.PausedLanes)
	answer[api.Cluster](t, do(h, http.MethodPost, clustersPath+"/web/pause", ""), http.StatusOK)
	answer[api.Cluster](t, do(h, http.MethodPost, clustersPath+"/web/resume", `{"lane":"default"}`), http.StatusOK)
	require.Equal(t, []any{
		"pause", contract.PauseRequest{Lane: "cap/arm+gpu", Reason: "driver"}, "pause", contract.PauseRequest{},
		"resume", contract.PauseRequest{Lane: "default"},
	}, asked)

	p := problem(t, do(h, http.MethodPost, clustersPath+"/web/pause", `{"lane":"canary"}`), 422,
		protocol.CodeInvalidRequest)
	require.Equal(t, "body.lane", p.Errors[0].Location)
	require.Contains(t, p.Errors[0].Message, "shard/<number>")
	problem(t, do(h, http.MethodPost, clustersPath+"/web/resume", `{"lanes":"default"}`), 422,
		protocol.CodeInvalidRequest)
	problem(t, do(h, http.MethodPost, clustersPath+"/canary/pause", ""), 404, protocol.CodeUnknownCluster)
}

// TestChangesOfAClusterAnswerHowItStands: the workflow says so when it is asked.
func TestChangesOfAClusterAnswerHowItStands(t *testing.T) {
	t.Parallel()
	f := newFake()
	e := f.withClusterState(&cluster.Cluster{Config: api.ClusterConfig{Name: "web"},
		Members: []cluster.Member{{AgentID: "a-1", Status: api.AgentOnline}},
		Targets: cluster.Targets{{ID: "db-1", Agent: "a-1"}}})
	e.update = func(string, any) (any, error) { return contract.Done{}, nil }
	h := serve(t, f)
	path := clustersPath + "/web"
	tag := do(h, http.MethodGet, path, "").Header().Get("ETag")
	for _, change := range [][3]string{{http.MethodPost, "/pause", `{}`}, {http.MethodPost, "/resume", `{}`},
		{http.MethodPut, "", `{}`}, {http.MethodPatch, "", `{}`}} {
		w := do(h, change[0], path+change[1], change[2])
		got := answer[api.Cluster](t, w, http.StatusOK)
		require.Equal(t, "web", got.Name, change)
		require.Equal(t, 1, got.AgentCount, change)
		require.Equal(t, tag, w.Header().Get("ETag"), change)
	}
	got := answer[struct{ Targets []api.Target }](t,
		do(h, http.MethodPost, path+"/targets", `{"add":["db-1"]}`), http.StatusOK)
	require.Equal(t, []api.Target{{ID: "db-1", Agent: "a-1"}}, got.Targets)
}

type lanePage struct {
	Lanes         []api.Lane `json:"lanes"`
	NextPageToken string     `json:"next_page_token"`
}

func TestQueueViews(t *testing.T) {
	t.Parallel()
	f := newFake()
	since := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	member := func(id string, capabilities ...string) cluster.Member {
		return cluster.Member{AgentID: id, Instance: "i", Epoch: 1, Status: api.AgentOnline,
			AgentProfile: api.AgentProfile{MaxTasks: 4, Capabilities: capabilities}}
	}
	show := func(c cluster.Cluster) {
		c.Config = c.Config.WithDefaults()
		f.withCluster(c.Config).query = func() (any, error) { return contract.ClusterView{Cluster: c}, nil }
	}
	show(cluster.Cluster{
		Config: api.ClusterConfig{Name: "east"}, Members: []cluster.Member{member("a-1", "gpu"), member("a-2")},
		CapabilityLanes: cluster.CapabilityLanes{CapabilitySets: [][]string{{"gpu"}}},
		Pauses:          []cluster.Pause{{Lane: "agent/a-2", Since: since}, {Lane: "cap/gpu", Since: since, Reason: "driver"}},
	})
	show(cluster.Cluster{
		Config:  api.ClusterConfig{Name: "keyed", ReplicationMode: api.Sharded, Shards: 11},
		Members: []cluster.Member{member("s-1")},
		Shards:  append(make([]cluster.ShardOwner, 10), cluster.ShardOwner{Owner: "s-1", Epoch: 4}),
	})
	pinned := f.withTask(contract.TaskState{})
	pinned.info.SearchAttributes.IndexedFields[contract.AttrCluster.GetName()] = payload("east")
	pinned.info.SearchAttributes.IndexedFields[contract.AttrAgent.GetName()] = payload("a-9")
	f.workers = []*workerpb.WorkerHeartbeat{{
		WorkerIdentity:        contract.AgentIdentity("east", "a-1"),
		WorkerInstanceKey:     "i",
		ActivityTaskSlotsInfo: &workerpb.WorkerSlotsInfo{CurrentUsedSlots: 3},
	}}
	f.backlogs = map[string]map[int32]int64{"lane/east": {3: 5, 1: 2}, "lane/keyed/shard/10": {2: 1},
		"lane/east/agent/a-2": {3: 2}}
	h := serve(t, f)

	east := answer[lanePage](t, do(h, http.MethodGet, clustersPath+"/east/queue", ""), http.StatusOK).Lanes
	names := func(lanes []api.Lane) (list []string) {
		for _, l := range lanes {
			list = append(list, l.Cluster+" "+l.Lane)
		}
		return list
	}
	require.Equal(t, []string{"east default", "east cap/gpu", "east agent/a-2", "east agent/a-9"}, names(east))
	first := east[0]
	require.EqualValues(t, 7, first.Depth)
	require.Equal(t, "1m30s", first.OldestAge.String())
	require.InDelta(t, 1.5, first.AddRate, 1e-9)
	require.InDelta(t, .25, first.DispatchRate, 1e-9)
	require.Equal(t, 2, first.Agents)
	require.Equal(t, 8, first.Slots)
	require.Nil(t, first.BusySlots, "a-2 tells nothing")
	require.Nil(t, first.Paused)
	require.Equal(t, "lane/east", first.TaskQueue)
	require.Len(t, first.Priorities, 2)
	require.Equal(t, 1, first.Priorities[0].Priority)
	require.Equal(t, "critical", first.Priorities[0].Name)
	require.EqualValues(t, 2, first.Priorities[0].Depth)
	gpu := east[1]
	require.Equal(t, 1, gpu.Agents)
	require.Equal(t, 3, *gpu.BusySlots)
	require.Equal(t, &api.Pause{Since: since, Reason: "driver"}, gpu.Paused)
	require.NotNil(t, east[2].Paused)
	require.Equal(t, "lane/east/agent/a-9", east[3].TaskQueue)
	require.Zero(t, east[3].Agents)

	load := answer[api.ClusterLoad](t, do(h, http.MethodGet, clustersPath+"/east/load", ""), http.StatusOK)
	require.Equal(t, api.ClusterLoad{Cluster: "east", Running: 3, Waiting: 9, Total: 12, Average: 75,
		Agents: []api.AgentLoad{
			{AgentID: "a-1", Status: api.AgentOnline, Load: new(75.0), Running: 3, Slots: 4,
				Capabilities: []string{"gpu"}},
			{AgentID: "a-2", Status: api.AgentOnline, Slots: 4, QueueLength: 2, Capabilities: []string{}},
		}}, load)

	keyed := answer[lanePage](t, do(h, http.MethodGet, clustersPath+"/keyed/queue", ""), http.StatusOK).Lanes
	require.Len(t, keyed, 11)
	require.Equal(t, "shard/2", keyed[2].Lane, "by number")
	require.Equal(t, 1, keyed[10].Agents)
	require.EqualValues(t, 1, keyed[10].Depth)

	var all []string
	for token := ""; ; {
		page := answer[lanePage](t, do(h, http.MethodGet, "/api/v1/agents/queue?page_size=6&page_token="+token, ""),
			http.StatusOK)
		all = append(all, names(page.Lanes)...)
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	require.Len(t, all, 15)
	require.Equal(t, "keyed shard/10", all[14])
	problem(t, do(h, http.MethodGet, clustersPath+"/canary/queue", ""), 404, protocol.CodeUnknownCluster)
}

func TestPatchCluster(t *testing.T) {
	t.Parallel()
	f := newFake()
	before := api.ClusterConfig{Name: "web", MinAgents: 2, DesiredAgents: 4, TargetGroup: "g",
		TenantWeights: map[string]float64{"acme": 5, "old": 2}}.WithDefaults()
	state := &cluster.Cluster{Config: before}
	var got api.ClusterConfig
	f.withClusterState(state).update = func(_ string, arg any) (any, error) {
		got = arg.(contract.ConfigureRequest).ClusterConfig
		state.Config = got
		return contract.Done{}, nil
	}
	h := serve(t, f)
	patched := answer[api.Cluster](t, do(h, http.MethodPatch, clustersPath+"/web",
		`{"desired_agents":6,"role_lease":"8s","brake":{"min_lost":5},"tenant_weights":{"acme":7.5,"new":0.1,"old":0}}`),
		http.StatusOK)
	want := before
	want.DesiredAgents, want.RoleLease, want.Brake.MinLost = 6, api.Duration(8*time.Second), 5
	want.TenantWeights = map[string]float64{"acme": 7.5, "new": .1}
	require.Equal(t, want, got)
	require.Equal(t, want.TenantWeights, patched.TenantWeights)
	answer[api.Cluster](t, do(h, http.MethodPatch, clustersPath+"/web", `{"target_group":"","min_agents":0}`),
		http.StatusOK)
	require.Empty(t, got.TargetGroup)
	require.Zero(t, got.MinAgents)
	require.Equal(t, want.TenantWeights, got.TenantWeights)
	for _, bad := range []string{`{"tenant_weights":{"acme":101}}`, `{"tenant_weights":{"Canary ":1}}`, `{"shards":4}`,
		`{"min_agents":2,"desired_agents":1}`, `{"role_lease":"canary"}`} {
		problem(t, do(h, http.MethodPatch, clustersPath+"/web", bad), 422, protocol.CodeInvalidRequest)
	}
	problem(t, do(h, http.MethodPatch, clustersPath+"/canary", `{}`), 404, protocol.CodeUnknownCluster)
}

// The weight of a task's tenant goes to Temporal with its fairness key.
func TestTenantWeightIsSubmitted(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := serve(t, f)
	answer[api.Cluster](t, do(h, http.MethodPost, clustersPath, `{"name":"shared","tenant_weights":{"acme":5}}`),
		http.StatusCreated)
	for tenant, weight := range map[string]float32{"acme": 5, "other": 0} {
		task := answer[api.Task](t, do(h, http.MethodPost, tasksPath,
			`{"type":"x","cluster":"shared","tenant":"`+tenant+`"}`), http.StatusAccepted)
		priority := f.executions[task.WorkflowID].options.Priority
		require.Equal(t, tenant, priority.FairnessKey)
		require.InDelta(t, weight, priority.FairnessWeight, 1e-6)
	}
}

func TestFailoverOfAnOfflineAgentIsRefused(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "east"}, cluster.Member{AgentID: "a-1", Status: api.AgentOffline,
		StatusSince: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)})
	p := problem(t, do(serve(t, f), http.MethodPost, "/api/v1/agents/a-1/failover", ""), 409, protocol.CodeConflict)
	require.Contains(t, p.Detail, "offline since 2026-11-21T12:00:00Z")
	require.Empty(t, f.signals)
}
