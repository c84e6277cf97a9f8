package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

const overviewPath = "/api/v1/agents/overview"

func TestOverview(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := serve(t, f)
	empty := answer[api.Overview](t, do(h, http.MethodGet, overviewPath, ""), http.StatusOK)
	require.Empty(t, empty.Problems)
	require.Empty(t, empty.Clusters)

	f.withCluster(api.ClusterConfig{Name: "web", MinAgents: 1},
		cluster.Member{AgentID: "a", Status: api.AgentOnline, AgentProfile: api.AgentProfile{MaxTasks: 3}},
		cluster.Member{AgentID: "b", Status: api.AgentOffline, StatusSince: time.Now(),
			AgentProfile: api.AgentProfile{MaxTasks: 3}})
	f.executions["cluster/silent"] = open("cluster/silent", "Cluster")
	f.backlogs = map[string]map[int32]int64{"lane/web": {3: 4}}
	got := answer[api.Overview](t, do(h, http.MethodGet, overviewPath, ""), http.StatusOK)
	require.Equal(t, api.OverviewAgents{Online: 1, Offline: 1, Slots: 3}, got.Agents)
	require.Len(t, got.Clusters, 2)
	require.Equal(t, api.ClusterUnknown, got.Clusters[0].Status)
	require.Len(t, got.Lanes, 1)
	require.EqualValues(t, 4, got.Lanes[0].Depth)
	kinds := map[api.ProblemKind]string{}
	for _, p := range got.Problems {
		kinds[p.Kind] = p.Cluster
	}
	require.Equal(t, "silent", kinds[api.ProblemUnanswered])
	require.Equal(t, "web", kinds[api.ProblemAgents])
	require.Equal(t, api.SeverityCritical, got.Problems[0].Severity)
	require.WithinDuration(t, time.Now(), got.At, time.Minute)
}

// However many ask at once, the fleet is read once for them.
func TestOverviewsAreShared(t *testing.T) {
	t.Parallel()
	f := newFake()
	e := f.withCluster(api.ClusterConfig{Name: "web"})
	view, asked := e.query, atomic.Int64{}
	e.query = func() (any, error) {
		asked.Add(1)
		<-time.After(50 * time.Millisecond)
		return view()
	}
	h := serve(t, f)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			got := answer[api.Overview](t, do(h, http.MethodGet, overviewPath, ""), http.StatusOK)
			assert.Len(t, got.Clusters, 1)
		})
	}
	all.Wait()
	require.LessOrEqual(t, asked.Load(), int64(4), "one for the first, one for those who asked meanwhile")
}

// Whoever asks while the reading rests, after one that took long, is answered too.
func TestOverviewAfterASlowOne(t *testing.T) {
	t.Parallel()
	f := newFake()
	e := f.withCluster(api.ClusterConfig{Name: "web"})
	view, first := e.query, atomic.Bool{}
	e.query = func() (any, error) {
		if first.CompareAndSwap(false, true) {
			<-time.After(1800 * time.Millisecond) // the reading then rests for longer than a request's calls may take
		}
		return view()
	}
	h := serve(t, f)
	for range 2 {
		answer[api.Overview](t, do(h, http.MethodGet, overviewPath, ""), http.StatusOK)
	}
}

// A run or an array that waits for a person is a problem of its cluster, since it was blocked.
func TestOverviewShowsBlockedRunsAndArrays(t *testing.T) {
	t.Parallel()
	f, since := newFake(), time.Now().Add(-time.Hour).UTC()
	f.withCluster(api.ClusterConfig{Name: "east"})
	for id, workflow := range map[string]string{contract.RunWorkflowID("build-1"): contract.RunWorkflow,
		contract.RunWorkflowID("build-2"): contract.RunWorkflow, contract.ArrayWorkflowID("a"): contract.ArrayWorkflow} {
		e := open(id, workflow)
		e.info.SearchAttributes = &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{
			contract.AttrCluster.GetName(): payload("east"), contract.AttrStatus.GetName(): payload("blocked"),
			contract.AttrStatusAt.GetName(): payload(since),
		}}
		f.executions[id] = e
	}
	got := answer[api.Overview](t, do(serve(t, f), http.MethodGet, overviewPath, ""), http.StatusOK)
	for kind, want := range map[api.ProblemKind]string{
		api.ProblemRun:   "2 runs of cluster east wait for a person",
		api.ProblemArray: "1 array of cluster east waits for a person",
	} {
		at := slices.IndexFunc(got.Problems, func(p api.Problem) bool { return p.Kind == kind })
		require.GreaterOrEqual(t, at, 0)
		p := got.Problems[at]
		require.Equal(t, want, p.What)
		require.Equal(t, since, *p.Since)
	}
}

// A service that lacks instances and whose deployment failed is counted, is a problem, and is in the list of such jobs.
func TestOverviewShowsServicesInTrouble(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "east"})
	keepsService(api.DeploymentFailed)(&watchedFleet{fakeTemporal: f}, nil)
	h := serve(t, f)
	got := answer[api.Overview](t, do(h, http.MethodGet, overviewPath, ""), http.StatusOK)
	require.Equal(t, api.OverviewJobs{Troubled: 1, Lacking: 1, FailedDeployments: 1}, got.Jobs)
	require.Empty(t, got.Missing)
	kinds := map[api.ProblemKind]api.Problem{}
	for _, p := range got.Problems {
		kinds[p.Kind] = p
	}
	require.Equal(t, "job web of cluster east has 1 of 2 healthy instances", kinds[api.ProblemJob].What)
	require.Equal(t, []string{"web"}, kinds[api.ProblemDeployment].Jobs)

	listed := answer[struct{ Jobs []api.JobEntry }](t, do(h, http.MethodGet, jobsPath+"?troubled=true", ""), http.StatusOK)
	require.Len(t, listed.Jobs, 1)
	require.Equal(t, 1, listed.Jobs[0].Trouble.Healthy)
	require.Contains(t, listed.Jobs[0].Trouble.Why, "instance 1")
	keepsService(api.DeploymentSuccessful)(&watchedFleet{fakeTemporal: f}, nil)
	f.executions[contract.JobWorkflowID("web")].query = func() (any, error) { return &job.Job{}, nil }
	require.Empty(t, answer[struct{ Jobs []api.JobEntry }](t, do(h, http.MethodGet, jobsPath+"?troubled=true", ""),
		http.StatusOK).Jobs)
}

// That nobody could take over is no problem any more when an agent has come since, the same one or another.
func TestOverviewForgetsThatNobodyCouldTakeOver(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		agent  string
		status api.AgentStatus
		since  time.Time
		want   bool
	}{
		{"a-1", api.AgentOnline, now.Add(time.Second), false},
		{"a-2", api.AgentOnline, now.Add(time.Second), false},
		{"a-2", api.AgentOnline, now.Add(-time.Hour), true}, // it could not
		{"a-1", api.AgentOffline, now, true},
	} {
		f := newFake()
		f.withCluster(api.ClusterConfig{Name: "east"}, cluster.Member{AgentID: c.agent, Status: c.status,
			StatusSince: c.since, AgentProfile: api.AgentProfile{MaxTasks: 1}})
		record := recorded("a-1", 7, api.FailoverNoTarget)
		record.NoticedAt, record.CompletedAt = now, &now
		f.withFailover("a-1", 7).ended(record)
		got := answer[api.Overview](t, do(serve(t, f), http.MethodGet, overviewPath, ""), http.StatusOK)
		require.Len(t, got.Failovers, 1)
		require.Equal(t, c.want, slices.ContainsFunc(got.Problems,
			func(p api.Problem) bool { return p.Kind == api.ProblemFailover }), c)
	}
}

// All that waits for a person is counted, cluster by cluster, although only the newest are read.
func TestOverviewCountsAllThatWaitsForAPerson(t *testing.T) {
	t.Parallel()
	f := &watchedFleet{fakeTemporal: newFake(), counts: map[string]int64{"dead_letter east": 305, "dead_letter west": 2}}
	f.withCluster(api.ClusterConfig{Name: "east"})
	f.withCluster(api.ClusterConfig{Name: "west"})
	query := contract.TaskQuery(&api.TaskFilter{Status: api.TaskDeadLetter})
	clusters := []*workflowpb.WorkflowExecutionInfo{f.executions["cluster/east"].info, f.executions["cluster/west"].info}
	f.list = func(r *workflowservice.ListWorkflowExecutionsRequest) (
		*workflowservice.ListWorkflowExecutionsResponse, error) {
		answer := &workflowservice.ListWorkflowExecutionsResponse{}
		switch {
		case r.GetQuery() == query:
			answer.NextPageToken = []byte{1}
		case strings.Contains(r.GetQuery(), "'Cluster'"):
			answer.Executions = clusters
		}
		return answer, nil
	}
	got := answer[api.Overview](t, do(serveWith(t, f), http.MethodGet, overviewPath, ""), http.StatusOK)
	require.EqualValues(t, 307, got.Tasks.DeadLetter)
	said := map[string]string{}
	for _, p := range got.Problems {
		if p.Kind == api.ProblemDeadLetter {
			said[p.Cluster] = p.What
		}
	}
	require.Equal(t, map[string]string{"east": "305 dead letters of cluster east",
		"west": "2 dead letters of cluster west"}, said)
}
