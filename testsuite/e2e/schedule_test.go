package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const schedulesPath = "/api/v1/agents/schedules"

// schedules calls the API for the schedules of one node.
type schedules struct{ url string }

func (s schedules) call(t testing.TB, method, path string, body any, want int) api.Schedule {
	t.Helper()
	var got api.Schedule
	var out any = &got
	if want == http.StatusNoContent {
		out = nil
	}
	status, problem := call(t, method, s.url+schedulesPath+path, body, out)
	require.Equal(t, want, status, "%s %s: %+v", method, path, problem)
	return got
}

// trigger makes a task, in the next second if the schedule has fired in this one.
func (s schedules) trigger(t *testing.T, name string, request any) string {
	t.Helper()
	var triggered api.Triggered
	require.Eventually(t, func() bool {
		status, _ := call(t, http.MethodPost, s.url+schedulesPath+"/"+name+"/trigger", request, &triggered)
		return status == http.StatusAccepted
	}, patience, 100*time.Millisecond, "the trigger is taken")
	return triggered.TaskID
}

// until waits until the schedule is as the test wants it.
func (s schedules) until(t testing.TB, name string, condition func(*api.Schedule) bool) api.Schedule {
	t.Helper()
	var got api.Schedule
	require.Eventually(t, func() bool {
		got = s.call(t, http.MethodGet, "/"+name, nil, http.StatusOK)
		return condition(&got)
	}, patience, 50*time.Millisecond, "schedule %s", name)
	return got
}

// delete deletes a schedule at the end of the test, whatever became of it.
func (s schedules) delete(t testing.TB, name string) {
	t.Cleanup(func() {
		request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodDelete,
			s.url+schedulesPath+"/"+name, nil)
		require.NoError(t, err)
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	})
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	var calls atomic.Int64
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a")},
		map[string]agent.Handler{
			"tick": func(context.Context, *agent.Task) (any, error) { calls.Add(1); return nil, nil },
		})
	s, name := schedules{node.URL}, plane.UniqueID("every")
	s.delete(t, name)
	created := s.call(t, http.MethodPost, "", map[string]any{
		"name": name, "interval": "1s", "note": "beat",
		"task": map[string]any{"type": "tick", "cluster": cluster, "payload": map[string]any{"n": 1},
			"labels": map[string]string{"kind": "beat"}, "priority": 2},
	}, http.StatusCreated)
	require.Equal(t, api.OverlapSkip, created.Overlap)
	require.Equal(t, "1m0s", created.CatchupWindow.String())
	require.Equal(t, "beat", created.Note)
	status, problem := call(t, http.MethodPost, node.URL+schedulesPath,
		map[string]any{"name": name, "interval": "1s", "task": map[string]any{"type": "tick", "cluster": cluster}}, nil)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, protocol.CodeScheduleExists, problem.Code)

	t.Log("it makes tasks like a submission's")
	done := func(r *api.ScheduleRun) bool { return r.Status == api.TaskCompleted }
	got := s.until(t, name, func(g *api.Schedule) bool { return len(g.Runs) >= 2 && done(&g.Runs[len(g.Runs)-1]) })
	run := got.Runs[len(got.Runs)-1]
	require.Equal(t, name+run.ScheduledAt.Format("@20060102t150405z"), run.TaskID)
	require.Positive(t, calls.Load())
	var made api.Task
	status, _ = call(t, http.MethodGet, node.URL+"/api/v1/agents/tasks/"+run.TaskID, nil, &made)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, name, made.Schedule)
	require.Equal(t, map[string]string{"kind": "beat"}, made.Labels)
	require.Equal(t, 2, made.Priority)
	require.NotEmpty(t, got.NextTimes)

	t.Log("pause stops it")
	paused := s.call(t, http.MethodPost, "/"+name+"/pause", map[string]any{"reason": "holiday"}, http.StatusOK)
	require.True(t, paused.Paused)
	require.Equal(t, "holiday", paused.Note)
	require.Empty(t, paused.NextTimes)
	settled := s.until(t, name, func(g *api.Schedule) bool { return done(&g.Runs[0]) })
	clock := plane.UniqueID("clock")
	s.delete(t, clock)
	s.call(t, http.MethodPost, "", map[string]any{"name": clock, "interval": "1s", "overlap": "allow_all",
		"task": map[string]any{"type": "tick", "cluster": cluster}}, http.StatusCreated)
	s.until(t, clock, func(g *api.Schedule) bool { return g.Counts.Fired >= 2 })
	s.call(t, http.MethodDelete, "/"+clock, nil, http.StatusNoContent)
	require.Equal(t, settled.Counts.Fired, s.call(t, http.MethodGet, "/"+name, nil, http.StatusOK).Counts.Fired)

	t.Log("trigger works while it is paused")
	triggered := s.trigger(t, name, nil)
	s.until(t, name, func(g *api.Schedule) bool { return g.Runs[0].TaskID == triggered && done(&g.Runs[0]) })

	t.Log("a replacement keeps the pause; then it goes on in its new way")
	replaced := s.call(t, http.MethodPut, "/"+name, map[string]any{"cron": "0 3 * * mon-fri",
		"time_zone": "Europe/Berlin", "task": map[string]any{"type": "tick", "cluster": cluster}}, http.StatusOK)
	require.True(t, replaced.Paused)
	require.Equal(t, "0 3 * * mon-fri", replaced.Cron)
	require.Zero(t, replaced.Interval)
	resumed := s.call(t, http.MethodPost, "/"+name+"/resume", nil, http.StatusOK)
	require.False(t, resumed.Paused)
	require.NotEmpty(t, resumed.NextTimes)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for _, at := range resumed.NextTimes {
		require.Equal(t, "03:00", at.In(berlin).Format("15:04"))
		require.NotContains(t, []time.Weekday{time.Saturday, time.Sunday}, at.In(berlin).Weekday())
	}

	var list struct{ Schedules []api.ScheduleEntry }
	require.Eventually(t, func() bool {
		status, problem := call(t, http.MethodGet, node.URL+schedulesPath+"?cluster="+cluster, nil, &list)
		require.Equal(t, http.StatusOK, status, "%+v", problem)
		return len(list.Schedules) == 1 && list.Schedules[0].Cron != "" && !list.Schedules[0].Paused
	}, patience, 50*time.Millisecond)
	require.Equal(t, name, list.Schedules[0].Name)
	require.Equal(t, "tick", list.Schedules[0].Type)
	require.Equal(t, triggered, list.Schedules[0].LastTask)

	s.call(t, http.MethodDelete, "/"+name, nil, http.StatusNoContent)
	require.Eventually(t, func() bool {
		status, problem := call(t, http.MethodGet, node.URL+schedulesPath+"/"+name, nil, nil)
		return status == http.StatusNotFound && problem.Code == protocol.CodeUnknownSchedule
	}, patience, 50*time.Millisecond)
}

// A task that runs holds up the next, outlives its schedule, and does not hold it up as a dead letter.
func TestScheduleOverlap(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	release := make(chan struct{})
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a"), Slots: 8},
		map[string]agent.Handler{
			"hold": func(ctx context.Context, _ *agent.Task) (any, error) {
				select {
				case <-release:
					return "held", nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
			"break": func(context.Context, *agent.Task) (any, error) { return nil, fmt.Errorf("disk full") },
		})
	s := schedules{node.URL}
	make := func(overlap, taskType string) string {
		name := plane.UniqueID(strings.ReplaceAll(overlap, "_", "-"))
		s.delete(t, name)
		s.call(t, http.MethodPost, "", map[string]any{"name": name, "interval": "1s", "overlap": overlap,
			"task": map[string]any{"type": taskType, "cluster": cluster,
				"retry": map[string]any{"max_attempts": 1}}}, http.StatusCreated)
		return name
	}
	skip, cancel, broken := make("skip", "hold"), make("cancel_other", "hold"), make("skip", "break")

	got := s.until(t, skip, func(g *api.Schedule) bool { return g.Counts.SkippedOverlap >= 2 })
	require.Len(t, got.Runs, 1)
	held := got.Runs[0].TaskID
	waitTask(t, node.URL, held, api.TaskRunning)
	status, problem := call(t, http.MethodPost, node.URL+schedulesPath+"/"+skip+"/trigger", nil, nil)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, problem.Detail, "allow_all")
	triggered := s.trigger(t, skip, map[string]any{"overlap": "allow_all"})
	s.until(t, skip, func(g *api.Schedule) bool {
		return g.Runs[0].TaskID == triggered && g.Runs[0].Status == api.TaskRunning
	})

	t.Log("the last one is cancelled")
	s.until(t, cancel, func(g *api.Schedule) bool {
		return len(g.Runs) >= 2 && g.Runs[len(g.Runs)-1].Status == api.TaskCancelled
	})
	t.Log("a dead letter does not hold up the next")
	s.until(t, broken, func(g *api.Schedule) bool {
		return len(g.Runs) >= 2 && g.Runs[0].Status == api.TaskDeadLetter && g.Runs[1].Status == api.TaskDeadLetter
	})

	t.Log("deleting the schedule keeps its task")
	s.call(t, http.MethodDelete, "/"+skip, nil, http.StatusNoContent)
	require.Equal(t, api.TaskRunning, getTask(t, node.URL, held, "0s").Status)
	close(release)
	require.Equal(t, api.TaskCompleted, getTask(t, node.URL, held, "20s").Status)
}

// A schedule whose cluster was deleted says so; when the cluster is there again, with shards, it goes on.
func TestScheduleOfDeletedCluster(t *testing.T) {
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	s, name := schedules{node.URL}, plane.UniqueID("lost")
	s.delete(t, name)
	s.call(t, http.MethodPost, "", map[string]any{"name": name, "cron": "0 0 1 1 *", "overlap": "allow_all",
		"task": map[string]any{"type": "x", "cluster": cluster}}, http.StatusCreated)
	status, _ := call(t, http.MethodDelete, node.URL+"/api/v1/agents/clusters/"+cluster, nil, nil)
	require.Equal(t, http.StatusNoContent, status)
	trigger := func() string {
		return s.trigger(t, name, nil)
	}
	first := trigger()
	got := s.until(t, name, func(g *api.Schedule) bool {
		return len(g.Runs) == 1 &&
			g.Runs[0].Status == "not_submitted"
	})
	require.Equal(t, first, got.Runs[0].TaskID)
	require.Contains(t, got.Runs[0].Why, "there is no cluster")

	node.EnsureCluster(t, api.ClusterConfig{Name: cluster, ReplicationMode: api.Sharded, Shards: 3})
	require.Eventually(t, func() bool { return trigger() != first }, patience, 50*time.Millisecond)
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a")},
		map[string]agent.Handler{"x": echo})
	s.until(t, name, func(g *api.Schedule) bool { return g.Runs[0].Status == api.TaskCompleted })
}
