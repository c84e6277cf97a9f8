package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// TestHangingHandlerIsNoticed has one handler that gives no sign of life, and an agent, spoken by hand, that lives and
// does not end its own. Both tasks are done by others, with the checkpoint of the first attempt.
func TestHangingHandlerIsNoticed(t *testing.T) {
	t.Parallel()
	quick := plane.QuickTiming()
	quick.HeartbeatInterval = 300 * time.Millisecond
	node := plane.NewNode(t, plane.NodeOptions{Config: hub.Config{Timing: quick}})
	t.Run("by its agent", func(t *testing.T) {
		t.Parallel()
		cluster := node.EnsureCluster(t, api.ClusterConfig{})
		startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a")},
			map[string]agent.Handler{
				"hang": func(ctx context.Context, task *agent.Task) (any, error) {
					if task.Attempt == 1 {
						task.ReportProgress(api.Progress{Percent: 40, Step: "copy",
							Message: "half way through the second disk"})
						if err := task.SaveCheckpoint(map[string]int{"rows": 7}); err != nil {
							return nil, err
						}
						<-ctx.Done()
						return nil, context.Cause(ctx)
					}
					return task.Checkpoint, nil
				},
			})
		id := submit(t, node.URL, map[string]any{"type": "hang", "cluster": cluster, "beacon_timeout": "1.5s",
			"retry": map[string]any{"initial_interval": "10ms"}})
		got := getTask(t, node.URL, id, "30s")
		require.Equal(t, api.TaskCompleted, got.Status, got.Why)
		require.JSONEq(t, `{"rows":7}`, string(got.Result), "the checkpoint reached the next attempt")
		require.Len(t, got.Attempts, 2)
		require.Equal(t, api.AttemptTimedOut, got.Attempts[0].Outcome)
		require.Equal(t, "no beacon for 1.5s", got.Attempts[0].Reason)
		require.Equal(t, &api.Progress{Percent: 40, Step: "copy", Message: "half way through the second disk"},
			got.Attempts[0].Progress)
	})
	t.Run("by the hub", func(t *testing.T) {
		t.Parallel()
		cluster := node.EnsureCluster(t, api.ClusterConfig{})
		deaf := newWireAgent(t, node.URL, cluster)
		deaf.register(t)
		id := submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster, "payload": "done",
			"beacon_timeout": "1s", "retry": map[string]any{"initial_interval": "10ms"}})
		a := deaf.take(t)
		require.Equal(t, time.Second, a.Beacon.Std())
		var dropped protocol.Command
		require.Eventually(t, func() bool { // it lives and polls, and does nothing else
			_, polled, _ := deaf.poll(t, protocol.RunningAttempt{TaskID: a.TaskID, Attempt: a.Attempt})
			for _, c := range polled.Commands {
				dropped = c
			}
			return dropped.Type == protocol.CommandDrop
		}, patience, 10*time.Millisecond)
		require.Equal(t, "no beacon for 1s", dropped.Reason)
		startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a")},
			map[string]agent.Handler{"echo": echo})
		got := getTask(t, node.URL, id, "30s")
		require.Equal(t, api.TaskCompleted, got.Status, got.Why)
		require.Equal(t, api.AttemptTimedOut, got.Attempts[0].Outcome)
		require.Equal(t, deaf.id, got.Attempts[0].AgentID)
	})
}

// readLog reads a task's log.
func readLog(t testing.TB, url, id string, after int64, wait string) api.TaskLog {
	t.Helper()
	var log api.TaskLog
	status, problem := call(t, http.MethodGet, fmt.Sprintf("%s/api/v1/agents/tasks/%s/log?after=%d&wait=%s", url, id,
		after, wait), nil, &log)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	return log
}

// TestLogOfARunningTaskIsFollowed follows a log through another process's gateway, until its attempt ends.
func TestLogOfARunningTaskIsFollowed(t *testing.T) {
	t.Parallel()
	node, other := plane.NewNode(t, plane.NodeOptions{}), plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	say := make(chan string)
	id := plane.UniqueID("a")
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: id}, map[string]agent.Handler{
		"talk": func(_ context.Context, task *agent.Task) (any, error) {
			for text := range say {
				task.Log(text)
			}
			return "done", nil
		},
	})
	task := submit(t, node.URL, map[string]any{"type": "talk", "cluster": cluster})
	say <- "one"
	say <- "two"
	log := readLog(t, other.URL, task, 0, "20s")
	require.Len(t, log.Lines, 2, log.Why)
	require.Equal(t, "two", log.Lines[1].Text)
	require.EqualValues(t, 2, log.Next)
	require.Equal(t, id, log.AgentID)
	require.Equal(t, 1, log.Attempt)
	require.False(t, log.Ended)

	answered := make(chan api.TaskLog, 1)
	go func() { answered <- readLog(t, other.URL, task, log.Next, "20s") }()
	begun := time.Now()
	require.Empty(t, readLog(t, node.URL, task, log.Next, "1s").Lines)
	require.GreaterOrEqual(t, time.Since(begun), time.Second, "it waits for a line")
	said := time.Now()
	say <- "three"
	log = <-answered
	require.Less(t, time.Since(said), 5*time.Second) // well under a second, on a machine with nothing else to do
	require.Len(t, log.Lines, 1)
	require.Equal(t, "three", log.Lines[0].Text)

	go func() { answered <- readLog(t, other.URL, task, log.Next, "20s") }()
	close(say)
	log = <-answered
	require.True(t, log.Ended)
	require.Empty(t, log.Lines)
	require.Equal(t, api.TaskCompleted, getTask(t, node.URL, task, "20s").Status)
	require.Len(t, readLog(t, node.URL, task, 0, "0s").Lines, 3, "what it wrote is kept")

	status, problem := call(t, http.MethodGet, node.URL+"/api/v1/agents/tasks/no-such-task/log", nil, nil)
	require.Equal(t, http.StatusNotFound, status)
	require.Equal(t, protocol.CodeUnknownTask, problem.Code)

	require.Eventually(t, func() bool { // what was read is not kept
		found, err := plane.Temporal(t).ListActivities(t.Context(),
			client.ListActivitiesOptions{Query: fmt.Sprintf("ActivityType = '%s' AND TaskQueue = '%s'",
				contract.ReadLogActivity.Name, contract.HubQueue(node.Hub.ID()))})
		require.NoError(t, err)
		for asked, err := range found.Results { // the list may be behind
			require.NoError(t, err)
			_, err = plane.Temporal(t).GetActivityHandle(client.GetActivityHandleOptions{ActivityID: asked.ActivityID,
				RunID: asked.ActivityRunID}).Describe(t.Context(), client.DescribeActivityOptions{})
			var gone *serviceerror.NotFound
			if !errors.As(err, &gone) {
				return false
			}
		}
		return true
	}, patience, 100*time.Millisecond)
}

// TestRateLimitedProviderDelaysItsTasks has the only agent limited for a while.
func TestRateLimitedProviderDelaysItsTasks(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	until := time.Now().Add(3 * time.Second)
	options := agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a")}
	a, err := agent.New(options)
	require.NoError(t, err)
	require.NoError(t, a.SetProvider("llm", api.ProviderAccess{Available: true, RateLimitedUntil: &until}))
	a.Handle("echo", echo)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()
	other := submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster})
	limited := submit(t, node.URL, map[string]any{"type": "echo", "cluster": cluster, "provider": "llm",
		"payload": json.RawMessage(`1`)})
	require.Equal(t, api.TaskCompleted, getTask(t, node.URL, other, "20s").Status)
	require.Contains(t, waitTask(t, node.URL, limited, api.TaskRetryWait).Why, "provider llm limits the rate")
	got := getTask(t, node.URL, limited, "30s")
	require.Equal(t, api.TaskCompleted, got.Status, got.Why)
	require.False(t, got.Attempts[len(got.Attempts)-1].StartedAt.Before(until.Truncate(time.Second)),
		"not before the limit ended")
}
