package e2e

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mainstay.dev/mainstay/testsuite/slow"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"

	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/internal/devserver"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const bulkPath = "/api/v1/agents/tasks/bulk"

// waitBulk waits until the operation has ended.
func waitBulk(t testing.TB, url, id string) api.Bulk {
	t.Helper()
	var got api.Bulk
	require.Eventually(t, func() bool {
		status, problem := call(t, http.MethodGet, url+bulkPath+"/"+id+"?wait=30s", nil, &got)
		require.Equal(t, http.StatusOK, status, "%+v", problem)
		return got.Status != api.BulkRunning
	}, patience, 10*time.Millisecond)
	return got
}

// submitMany submits n tasks of a kind and returns their ids.
func submitMany(t testing.TB, url string, n int, spec map[string]any) []string {
	t.Helper()
	batch := make([]map[string]any, n)
	for i := range batch {
		batch[i] = spec
	}
	var answer struct{ Tasks []taskDone }
	status, problem := call(t, http.MethodPost, url+"/api/v1/agents/tasks/batch", batch, &answer)
	require.Equal(t, http.StatusAccepted, status, "%+v", problem)
	ids := make([]string, n)
	for i, submitted := range answer.Tasks {
		require.NotEmpty(t, submitted.ID)
		ids[i] = submitted.ID
	}
	return ids
}

// The worker of a bulk operation goes away in the middle: the next goes on, and every task is counted once.
func TestBulkSurvivesItsWorker(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	server, err := devserver.Start(t.Context(), devserver.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	c, err := client.DialContext(t.Context(), client.Options{HostPort: server.Address(), Namespace: server.Namespace(),
		Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	work := func() (stop func()) {
		stop, err := worker.Start(c, worker.Options{Namespace: server.Namespace()})
		require.NoError(t, err)
		return stop
	}
	stop := work()
	routes := httpapi.New(httpapi.Options{})
	g := gateway.New(gateway.Options{Store: store.Store{Client: c, Namespace: server.Namespace()}})
	g.Register(routes.API())
	rest := httptest.NewServer(routes.Handler())
	t.Cleanup(rest.Close)
	require.NoError(t, g.EnsureClusters(t.Context(), []api.ClusterConfig{{Name: "c"}, {Name: "other"}}))

	const tasks = 300
	ids := submitMany(t, rest.URL, tasks, map[string]any{"type": "x", "cluster": "c"})
	bystander := submit(t, rest.URL, map[string]any{"type": "x", "cluster": "other"})
	ask := func(dry bool, want int) api.Bulk {
		var bulk api.Bulk
		status, problem := call(t, http.MethodPost, rest.URL+bulkPath, map[string]any{
			"action": "cancel", "filter": map[string]any{"cluster": "c",
				"status": "queued"}, "reason": "wrong input", "dry_run": dry}, &bulk)
		require.Equal(t, want, status, "%+v", problem)
		return bulk
	}
	var found api.Bulk
	require.Eventually(t, func() bool { found = ask(true, http.StatusOK); return found.Expected == tasks },
		patience, 50*time.Millisecond)
	require.True(t, found.DryRun)
	require.Len(t, found.Sample, 20)
	require.Subset(t, ids, found.Sample)

	bulk := ask(false, http.StatusAccepted)
	for i := range 2 {
		// The first page is done and the second under way.
		require.Eventually(t, func() bool {
			done, err := c.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{
				Namespace: server.Namespace(), Query: "WorkflowType = 'Task' AND ExecutionStatus = 'Canceled'"})
			return err == nil && done.GetCount() > int64(20+130*i)
		}, patience, 5*time.Millisecond)
		stop()
		stop = work()
	}
	defer func() { stop() }()
	got := waitBulk(t, rest.URL, bulk.ID)
	require.Equal(t, api.BulkCompleted, got.Status, got.Why)
	require.Equal(t, []int{tasks, tasks, 0, 0}, []int{got.Matched, got.Done, got.Skipped, got.Failed}, "%+v",
		got.Examples)
	for _, i := range []int{0, 99, 100, 150, 299} {
		require.Equal(t, api.TaskCancelled, getTask(t, rest.URL, ids[i], "10s").Status)
	}
	require.Equal(t, "wrong input", getTask(t, rest.URL, ids[7], "0s").Why)
	require.Equal(t, api.TaskQueued, getTask(t, rest.URL, bystander, "0s").Status)
}

func TestBulkActions(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	var broken atomic.Bool
	broken.Store(true)
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a"), Slots: 4},
		map[string]agent.Handler{
			"disk": func(context.Context, *agent.Task) (any, error) {
				if broken.Load() {
					return nil, errors.New("disk full")
				}
				return "written", nil
			},
		})
	spec := func(taskType string, labels map[string]string) map[string]any {
		return map[string]any{"type": taskType, "cluster": cluster, "labels": labels,
			"retry": map[string]any{"max_attempts": 1}}
	}
	begun := time.Now()
	odd := map[string]string{"of": `O'Brien \\ " OR "x 100% _ = ü`}
	dead := submitMany(t, node.URL, 3, spec("disk", odd))
	other := submitMany(t, node.URL, 2, spec("disk", map[string]string{"of": strings.ToLower(odd["of"])}))
	for _, id := range slices.Concat(dead, other) {
		waitTask(t, node.URL, id, api.TaskDeadLetter)
	}
	broken.Store(false)
	start := func(body map[string]any) api.Bulk {
		var bulk api.Bulk
		status, problem := call(t, http.MethodPost, node.URL+bulkPath, body, &bulk)
		require.Contains(t, []int{http.StatusOK, http.StatusAccepted}, status, "%+v", problem)
		return bulk
	}
	// found waits until visibility shows so many.
	found := func(body map[string]any, want int) {
		body["dry_run"] = true
		require.Eventually(t, func() bool { return start(body).Expected == want }, patience, 50*time.Millisecond,
			"%v", body)
		delete(body, "dry_run")
	}
	retry := map[string]any{"action": "retry", "reason": "disk is back", "filter": map[string]any{
		"cluster": cluster, "type": "disk", "labels": odd, "submitted_after": begun.Add(
			-time.Minute), "submitted_before": time.Now().Add(time.Minute)}}
	found(map[string]any{"action": "retry", "reason": "x", "filter": map[string]any{"cluster": cluster,
		"submitted_before": begun.Add(-time.Minute)}}, 0)
	found(map[string]any{"action": "retry", "reason": "x", "filter": map[string]any{"cluster": cluster}}, 5)
	found(retry, 3)
	got := waitBulk(t, node.URL, start(retry).ID)
	require.Equal(t, []int{3, 3, 0, 0}, []int{got.Matched, got.Done, got.Skipped, got.Failed})
	require.Equal(t, "disk is back", got.Reason)
	for _, id := range dead {
		waitTask(t, node.URL, id, api.TaskCompleted)
	}

	t.Log("by ids: what has ended is skipped, what never was has failed, each with its reason")
	got = waitBulk(t, node.URL, start(map[string]any{"action": "cancel", "reason": "x",
		"filter": map[string]any{"ids": []string{other[0], dead[0], "nobody", dead[0]}}}).ID)
	require.Equal(t, []int{3, 1, 1, 1}, []int{got.Matched, got.Done, got.Skipped, got.Failed})
	require.ElementsMatch(t, []api.BulkExample{
		{TaskID: dead[0], Outcome: api.BulkTaskSkipped, Reason: "the task has ended"},
		{TaskID: "nobody", Outcome: api.BulkTaskFailed,
			Reason: "there is no task with this id, or its retention has ended"},
	}, got.Examples)
	require.Equal(t, api.TaskDeadLetter, getTask(t, node.URL, other[1], "0s").Status)
	refused := waitBulk(t, node.URL, start(map[string]any{"action": "review", "decision": "rerun", "reason": "x",
		"filter": map[string]any{"ids": []string{other[1]}}}).ID)
	require.Equal(t, []int{1, 0, 1, 0}, []int{refused.Matched, refused.Done, refused.Skipped, refused.Failed})
	require.Contains(t, refused.Examples[0].Reason, "only a task in review")

	t.Log("one that has ended cannot be stopped, and is in the list")
	status, problem := call(t, http.MethodPost, node.URL+bulkPath+"/"+refused.ID+"/cancel", nil, nil)
	require.Equal(t, http.StatusConflict, status, "%+v", problem)
	var list struct{ Bulks []api.Bulk }
	require.Eventually(t, func() bool {
		status, _ := call(t, http.MethodGet, node.URL+bulkPath, nil, &list)
		return status == http.StatusOK && slices.ContainsFunc(list.Bulks,
			func(b api.Bulk) bool { return b.ID == refused.ID && b.Skipped == 1 && b.Action == api.BulkReview })
	}, patience, 50*time.Millisecond)
}

// Nothing but what is meant.
func TestBulkRefusals(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	for name, c := range map[string]struct {
		body, location, says string
	}{
		"no filter":        {`"action":"cancel"`, "body.filter", `"all": true`},
		"all and a filter": {`"action":"cancel","all":true,"filter":{"type":"x"}`, "body.all", "left out"},
		"ids and a filter": {`"action":"cancel","filter":{"type":"x","ids":["a"]}`, "body.filter.ids", "alone"},
		"retry of what is queued": {`"action":"retry","filter":{"status":"queued"}`, "body.filter.status",
			"dead_letter"},
		"cancel of what has ended": {`"action":"cancel","filter":{"status":"completed"}`, "body.filter.status",
			"dead_letter"},
		"review without decision": {`"action":"review","filter":{"type":"x"}`, "body.decision", "rerun"},
		"decision without review": {`"action":"cancel","decision":"failed","filter":{"type":"x"}`, "body.decision",
			"review"},
		"priority without one": {`"action":"priority","filter":{"type":"x"}`, "body.priority", "1 (first)"},
		"times that hold nothing": {`"action":"cancel","filter":{"submitted_after":"2026-01-02T00:00:00Z",` +
			`"submitted_before":"2026-01-01T00:00:00Z"}`, "body.filter.submitted_before", "after"},
		"unknown action": {`"action":"explode","filter":{"type":"x"}`, "body.action", "cancel"},
		"unknown field":  {`"action":"cancel","filter":{"types":"x"}`, "body.filter.types", "unexpected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, problem := call(t, http.MethodPost, node.URL+bulkPath, `{"reason":"x",`+c.body+`}`, nil)
			require.Equal(t, http.StatusUnprocessableEntity, status)
			require.Equal(t, protocol.CodeInvalidRequest, problem.Code)
			require.NotEmpty(t, problem.Errors)
			require.Equal(t, c.location, problem.Errors[0].Location)
			require.Contains(t, problem.Errors[0].Message, c.says)
		})
	}
}
