package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// ask posts to the cluster's API and reads the cluster that it answers.
func (b *bench) ask(t *testing.T, method, path string, body any) api.Cluster {
	t.Helper()
	var k api.Cluster
	status, problem := call(t, method, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+path, body, &k)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	return k
}

// lanes is the cluster's queue view, by lane.
func (b *bench) lanes(t *testing.T) map[string]api.Lane {
	t.Helper()
	var page struct{ Lanes []api.Lane }
	status, problem := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/clusters/"+b.cluster+"/queue", nil, &page)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	lanes := map[string]api.Lane{}
	for _, l := range page.Lanes {
		lanes[l.Lane] = l
	}
	return lanes
}

func (b *bench) waitDepth(t *testing.T, lane string, depth int64) api.Lane {
	t.Helper()
	require.Eventually(t, func() bool { return b.lanes(t)[lane].Depth == depth }, patience, 50*time.Millisecond,
		"%d wait in %s", depth, lane)
	return b.lanes(t)[lane]
}

func (b *bench) begunCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.begun)
}

func TestPausedClusterTakesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	first := plane.UniqueID("a")
	b.agent(t, first)
	running := b.submit(t, nil)
	b.waitBegins(t, running, 1)

	paused := b.ask(t, http.MethodPost, "/pause", map[string]any{"reason": "new disks"})
	require.Equal(t, "new disks", paused.Paused.Reason)
	since := paused.Paused.Since.Format(time.RFC3339)
	waiting := []string{b.submit(t, nil), b.submit(t, nil), b.submit(t, map[string]any{"agent": first})}
	second := plane.UniqueID("b")
	b.agent(t, second)
	waiting = append(waiting, b.submit(t, map[string]any{"agent": second}))
	lane := b.waitDepth(t, "default", 2)
	b.waitDepth(t, "agent/"+first, 1)
	b.waitDepth(t, "agent/"+second, 1)
	require.Equal(t, "new disks", lane.Paused.Reason)
	require.Equal(t, 2, lane.Agents)
	require.Equal(t, 8, lane.Slots)
	require.Equal(t, 1, b.begunCount(), "nothing began but what ran before")
	for _, id := range waiting {
		require.Equal(t, "cluster "+b.cluster+" is paused since "+since+": new disks",
			getTask(t, b.node.URL, id, "0s").Why)
	}

	t.Log("a restarted hub hears of it with its first agent, and so does another one")
	hubID, listen := b.node.Hub.ID(), strings.TrimPrefix(b.node.URL, "http://")
	b.node.Stop()
	b.node = plane.NewNode(t, plane.NodeOptions{HubID: hubID, Listen: listen})
	require.Eventually(t, func() bool { return b.lanes(t)["default"].BusySlots != nil }, patience,
		50*time.Millisecond, "the agents are back")
	other := plane.NewNode(t, plane.NodeOptions{})
	third := plane.UniqueID("c")
	startAgent(t, agent.Options{HubURLs: []string{other.URL}, Cluster: b.cluster, ID: third, Slots: 4},
		map[string]agent.Handler{"hold": echo})
	require.Eventually(t, func() bool { return b.view(t).Member(third) != nil }, patience, 10*time.Millisecond)
	b.finish.Store(true)
	require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, running, "20s").Status, "what ran goes on to its end")
	require.EqualValues(t, 2, b.lanes(t)["default"].Depth)
	require.Equal(t, 1, b.begunCount())

	resumed := b.ask(t, http.MethodPost, "/resume", nil)
	require.Nil(t, resumed.Paused)
	for _, id := range waiting {
		require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, id, "20s").Status)
	}
}

func TestPausedLaneLeavesOthersServed(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	b.finish.Store(true)
	gpu := plane.UniqueID("gpu")
	startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: gpu, Slots: 2,
		Capabilities: []string{"gpu"}}, map[string]agent.Handler{"hold": echo})
	needs := map[string]any{"required_capabilities": []string{"gpu"}}
	require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, b.submit(t, needs), "20s").Status)
	paused := b.ask(t, http.MethodPost, "/pause", map[string]any{"lane": "cap/gpu", "reason": "driver"})
	require.Nil(t, paused.Paused)
	require.Equal(t, "cap/gpu", paused.PausedLanes[0].Lane)
	held := b.submit(t, needs)
	b.waitDepth(t, "cap/gpu", 1)
	require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, b.submit(t, nil), "20s").Status,
		"the cluster's own lane is served")
	require.Regexp(t, `^lane cap/gpu of cluster .* is paused since .*Z: driver$`,
		getTask(t, b.node.URL, held, "0s").Why)
	b.ask(t, http.MethodPost, "/resume", map[string]any{"lane": "cap/gpu"})
	require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, held, "20s").Status)
}

func TestQueueViewAndWhy(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	id := plane.UniqueID("a")
	b.agent(t, id)
	for range 4 {
		b.waitBegins(t, b.submit(t, nil), 1)
	}
	var last string
	for priority, n := range map[int]int{1: 2, 3: 3, 5: 1} {
		for range n {
			submitted := b.submit(t, map[string]any{"priority": priority})
			if priority == 3 {
				last = submitted
			}
		}
	}
	lane := b.waitDepth(t, "default", 6)
	depths := map[string]int64{}
	for _, p := range lane.Priorities {
		depths[fmt.Sprint(p.Priority, p.Name)] = p.Depth
	}
	require.Equal(t, map[string]int64{"1critical": 2, "3normal": 3, "5background": 1}, depths)
	require.Positive(t, lane.OldestAge)
	require.Equal(t, "lane/"+b.cluster, lane.TaskQueue)
	require.Eventually(t, func() bool {
		return getTask(t, b.node.URL, last,
			"0s").Why == "all 4 slots of the only agent of cluster "+b.cluster+" are in use; up to about 4 tasks are ahead of it"
	}, patience, 100*time.Millisecond, "the load is published every heartbeat")
	var listed struct{ Tasks []taskDone }
	require.Eventually(t, func() bool {
		call(t, http.MethodGet, b.node.URL+"/api/v1/agents/tasks/queue?cluster="+b.cluster, nil, &listed)
		return len(listed.Tasks) == 6
	}, patience, 50*time.Millisecond)
	for _, l := range listed.Tasks {
		require.Contains(t, l.Why, "all 4 slots", "lists say why too")
	}
	var all struct{ Lanes []api.Lane }
	status, problem := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/queue?page_size=1000", nil, &all)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	require.True(t, slices.ContainsFunc(all.Lanes, func(l api.Lane) bool {
		return l.Cluster == b.cluster &&
			l.Lane == "default" && l.Depth == 6
	}))
	b.finish.Store(true)
}

// A tenant's weight goes with its tasks to the lane, and a change counts from then on.
func TestTenantWeightsReachTheLane(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{TenantWeights: map[string]float64{"acme": 8}})
	_, net := b.agent(t, plane.UniqueID("a"))
	moved := b.submit(t, map[string]any{"tenant": "acme"})
	b.waitBegins(t, moved, 1)
	net.cut()
	require.Eventually(t, func() bool {
		d, err := plane.Temporal(t).DescribeWorkflowExecution(t.Context(), contract.TaskWorkflowID(moved), "")
		require.NoError(t, err)
		require.InDelta(t, 8, d.GetWorkflowExecutionInfo().GetPriority().GetFairnessWeight(), 1e-6)
		for _, p := range d.GetPendingActivities() {
			if priority := p.GetActivityOptions().GetPriority(); p.GetActivityId() == contract.AttemptActivityID("t-1", 2) {
				require.Zero(t, priority.GetFairnessWeight(), "moved ahead, with its workflow's weight")
				return priority.GetPriorityKey() == 2
			}
		}
		return false
	}, patience, 20*time.Millisecond)

	changed := b.ask(t, http.MethodPatch, "", map[string]any{"tenant_weights": map[string]float64{"acme": 0.5,
		"other": 2}})
	require.Equal(t, map[string]float64{"acme": 0.5, "other": 2}, changed.TenantWeights)
	for tenant, weight := range changed.TenantWeights {
		id := b.submit(t, map[string]any{"tenant": tenant})
		d, err := plane.Temporal(t).DescribeWorkflowExecution(t.Context(), contract.TaskWorkflowID(id), "")
		require.NoError(t, err)
		require.InDelta(t, weight, d.GetWorkflowExecutionInfo().GetPriority().GetFairnessWeight(), 1e-6, tenant)
	}
	net.heal()
	b.finish.Store(true)
}

func TestTasksAreFoundByLabelAndTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	values := []string{"film", "Film", "it's", `say "cheese"`, `c:\temp\`, "100%", "%27", "Größe 日本 🎬", "a=b:c",
		"two words", "", "I♡NY", "' OR '1'='1", "-", "a*", "NOT x", "(y)"}
	ids := map[string]string{}
	begin := time.Now()
	for _, value := range values {
		ids[value] = b.submit(t, map[string]any{"labels": map[string]string{"v": value, "all": "yes"}})
	}
	find := func(query url.Values) (found []string) {
		query.Set("cluster", b.cluster)
		var page struct{ Tasks []taskDone }
		status, problem := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/tasks?"+query.Encode(), nil, &page)
		require.Equal(t, http.StatusOK, status, "%v %+v", query, problem)
		for _, task := range page.Tasks {
			found = append(found, task.ID)
		}
		return found
	}
	require.Eventually(t, func() bool { return len(find(url.Values{"label": {"all=yes"}})) == len(values) },
		patience, 50*time.Millisecond)
	for _, value := range values {
		require.Equal(t, []string{ids[value]}, find(url.Values{"label": {"v=" + value, "all:yes"}}), "label %q", value)
	}
	require.Empty(t, find(url.Values{"label": {"v=nobody"}}))
	require.Empty(t, find(url.Values{"label": {"v=film", "all=no"}}))

	var first api.Task
	call(t, http.MethodGet, b.node.URL+"/api/v1/agents/tasks/"+ids["Film"], nil, &first)
	at := first.CreatedAt.Format(time.RFC3339Nano)
	require.Len(t, find(url.Values{"submitted_before": {at}}), 1, "those before it")
	require.Len(t, find(url.Values{"submitted_after": {at}}), len(values)-1, "it and those after it")
	require.Len(t, find(url.Values{"submitted_after": {begin.Add(-time.Minute).Format(time.RFC3339)}}), len(values))
}
