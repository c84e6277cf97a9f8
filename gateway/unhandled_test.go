package gateway_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// withUnhandled adds tasks of a type that no agent could run when they were last offered.
func (f *fakeTemporal) withUnhandled(
	n int, taskType string, since time.Time,
) (infos []*workflowpb.WorkflowExecutionInfo) {
	for i := range n {
		id := contract.TaskWorkflowID(fmt.Sprintf("%s-%d", taskType, i))
		e := open(id, contract.TaskWorkflow)
		e.info.SearchAttributes = &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{
			contract.AttrCluster.GetName(): payload("web"), contract.AttrTaskType.GetName(): payload(taskType),
			contract.AttrStatus.GetName():   payload("unhandled"),
			contract.AttrStatusAt.GetName(): payload(since.Add(time.Duration(i) * time.Minute)),
		}}
		f.executions[id] = e
		infos = append(infos, e.info)
	}
	return infos
}

func TestOverviewNamesWhatNobodyHandles(t *testing.T) {
	t.Parallel()
	since := time.Now().Add(-time.Hour).Truncate(time.Second).UTC()
	query := contract.TaskQuery(&api.TaskFilter{Status: contract.TaskUnhandled})
	for name, c := range map[string]struct {
		types  []string
		more   bool
		broken bool
		want   string
		why    string
	}{
		"nobody": {types: []string{"echo"},
			want: "2 tasks of type resize in cluster web: no agent handles it", why: "agent a handles echo"},
		"more of them": {types: []string{"echo"}, more: true,
			want: "at least 2 tasks of type resize in cluster web: no agent handles it", why: "agent a handles echo"},
		"somebody by now":  {types: []string{"echo", "resize"}},
		"any":              {},
		"they are unknown": {types: []string{"echo"}, broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			state := f.withCluster(api.ClusterConfig{Name: "web"},
				cluster.Member{AgentID: "a", Status: api.AgentOnline,
					AgentProfile: api.AgentProfile{MaxTasks: 3, TaskTypes: c.types}})
			infos := f.withUnhandled(2, "resize", since)
			f.list = func(r *workflowservice.ListWorkflowExecutionsRequest) (
				*workflowservice.ListWorkflowExecutionsResponse, error) {
				answer := &workflowservice.ListWorkflowExecutionsResponse{}
				switch {
				case r.GetQuery() == query && c.broken:
					return nil, fmt.Errorf("canary")
				case r.GetQuery() == query:
					require.EqualValues(t, 200, r.GetPageSize())
					answer.Executions = infos
					if c.more {
						answer.NextPageToken = []byte{1}
					}
				case strings.Contains(r.GetQuery(), "'Cluster'"):
					answer.Executions = []*workflowpb.WorkflowExecutionInfo{state.info}
				}
				return answer, nil
			}
			got := answer[api.Overview](t, do(serve(t, f), http.MethodGet, overviewPath, ""), http.StatusOK)
			i := slices.IndexFunc(got.Problems,
				func(p api.Problem) bool { return p.Kind == api.ProblemUnhandled })
			require.Equal(t, c.broken, slices.Contains(got.Missing, "which tasks no agent handles"), got.Missing)
			require.Equal(t, c.want != "", i >= 0)
			if i >= 0 {
				p := got.Problems[i]
				require.Equal(t, c.want, p.What)
				require.Equal(t, c.why, p.Why)
				require.Equal(t, since, *p.Since)
				require.Equal(t, "resize", p.TaskType)
				require.EqualValues(t, 2, p.Count)
			}
		})
	}
}

func TestWhyNobodyHandlesATask(t *testing.T) {
	t.Parallel()
	next := time.Unix(1_800_000_000, 0)
	const others = "its cluster is for others now: it fails as soon as an agent of the cluster is asked"
	for name, c := range map[string]struct {
		types   []string
		why     string
		tenants []string
	}{
		"nobody": {[]string{"echo"},
			"no agent handles it; agent a handles echo; it is offered again at 2027-01-15T08:00:00Z", nil},
		"somebody by now": {[]string{"resize"}, "backoff until 2027-01-15T08:00:00Z: no agent took the task", nil},
		"for others now":  {[]string{"echo"}, others, []string{"acme"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.withCluster(api.ClusterConfig{Name: "web", Tenants: c.tenants}, cluster.Member{AgentID: "a",
				Status: api.AgentOnline, AgentProfile: api.AgentProfile{MaxTasks: 3, TaskTypes: c.types}})
			task := f.withUnhandled(1, "resize", next)[0]
			task.SearchAttributes.IndexedFields[contract.AttrTenant.GetName()] = payload("beta")
			f.executions[contract.TaskWorkflowID("resize-0")].query = func() (any, error) {
				return contract.TaskState{Status: api.TaskRetryWait, Why: "no agent took the task",
					NextAttempt: &next}, nil
			}
			h := serve(t, f)
			one := answer[api.Task](t, do(h, http.MethodGet, tasksPath+"/resize-0", ""), http.StatusOK)
			require.Equal(t, api.TaskRetryWait, one.Status)
			require.Equal(t, c.why, one.Why)
			list := answer[taskPage](t, do(h, http.MethodGet, tasksPath+"/queue", ""), http.StatusOK)
			require.Len(t, list.Tasks, 1)
			require.Equal(t, api.TaskRetryWait, list.Tasks[0].Status)
			require.Equal(t, c.why, list.Tasks[0].Why)
		})
	}
}
