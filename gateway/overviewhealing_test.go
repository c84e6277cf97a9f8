package gateway_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	schedulepb "go.temporal.io/api/schedule/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// problemsOf are an overview's problems of a kind, by cluster.
func problemsOf(o *api.Overview, kind api.ProblemKind) map[string]api.Problem {
	found := map[string]api.Problem{}
	for _, p := range o.Problems {
		if p.Kind == kind {
			found[p.Cluster] = p
		}
	}
	return found
}

func TestOverviewTellsOfHealingAndScaling(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := serve(t, f)
	read := func() *api.Overview {
		o := answer[api.Overview](t, do(h, http.MethodGet, overviewPath, ""), http.StatusOK)
		return &o
	}
	minutes := time.Now().Add(-10 * time.Minute)
	member := func(id string, health *cluster.MemberHealth) cluster.Member {
		return cluster.Member{AgentID: id, Status: api.AgentOnline, StatusSince: minutes, Hub: "h",
			AgentProfile: api.AgentProfile{MaxTasks: 1},
			Health:       health}
	}
	ill := &cluster.MemberHealth{Level: api.HealthDegraded, Score: 0.8, Why: "disk errors", Since: minutes}
	f.withCluster(api.ClusterConfig{Name: "well"}.WithDefaults(), member("a", nil))
	missing := read()
	require.Equal(t, api.SeverityWarning, problemsOf(missing, api.ProblemHealing)[""].Severity,
		"no worker made the schedule")

	f.schedules.byID = map[string]*workflowservice.DescribeScheduleResponse{contract.HealingScheduleID: {
		Schedule: &schedulepb.Schedule{State: &schedulepb.ScheduleState{}}, Info: &schedulepb.ScheduleInfo{}}}
	require.Empty(t, read().Problems, "that it was missing is not remembered, and all is well")

	answer[api.HealingStatus](t, do(h, http.MethodPost, "/api/v1/agents/healing/pause", `{"reason": "kernels"}`),
		http.StatusOK)
	require.Equal(t, "kernels", problemsOf(read(), api.ProblemHealingPaused)[""].Why,
		"a pause shows at once, whatever is remembered")
	f.withCluster(api.ClusterConfig{Name: "ill"}.WithDefaults(), member("b", nil), member("c", nil), member("d", ill))
	f.withCluster(api.ClusterConfig{Name: "full", MaxAgents: 1,
		Scaling: api.ScalingPolicy{Mode: api.ScalingAuto}}.WithDefaults(), member("e", nil))
	f.backlogs = map[string]map[int32]int64{"lane/full": {3: 40}}
	held := problemsOf(read(), api.ProblemHealingPaused)
	require.Len(t, held, 1, "the pause itself is told with what it holds up")
	require.Equal(t, []string{"d"}, held["ill"].Agents)
	require.Contains(t, held["ill"].Why, "disk errors")

	answer[api.HealingStatus](t, do(h, http.MethodPost, "/api/v1/agents/healing/resume", ""), http.StatusOK)
	after := read()
	require.Empty(t, problemsOf(after, api.ProblemHealingPaused))
	require.Equal(t, "agent d of cluster ill is degraded", problemsOf(after, api.ProblemHealth)["ill"].What)
	require.Empty(t, after.Missing)
}
