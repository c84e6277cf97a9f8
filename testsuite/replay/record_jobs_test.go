package replay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/api"
)

// TestRecordJob records a job with versions, a schedule, runs that wait for others, and its end. It only runs when
// asked.
func TestRecordJob(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	name := plane.UniqueID("recorded")
	id := contract.JobWorkflowID(name)
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: contract.WorkerQueue},
		contract.JobWorkflow, contract.JobInput{Name: name})
	require.NoError(t, err)
	apply := func(more string) {
		definition, _, err := flow.Read("job.yaml", []byte("job: recorded\ncluster: none\n"+more+
			"steps: {a: {task: {type: echo}}}\n"))
		require.NoError(t, err)
		update(t, c, id, contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: *definition, By: "ada"})
	}
	apply("on: [{schedule: {cron: '0 3 * * *'}}]\n")
	apply("concurrency: {max_runs: 1}\n")
	update(t, c, id, contract.PauseJobUpdate.Name, contract.RunRequest{By: "ada", Reason: "new disks"})
	update(t, c, id, contract.ResumeJobUpdate.Name, contract.RunRequest{By: "ada"})

	// Workflows that do not listen stand for the runs.
	for _, run := range []string{"first", "second"} {
		_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: contract.RunWorkflowID(name + run),
			TaskQueue: contract.WorkerQueue}, contract.AccessWorkflow, contract.AccessInput{})
		require.NoError(t, err)
		require.NoError(t, contract.RunBeginsSignal.Send(t.Context(), c, id, contract.RunBegins{Run: name + run}))
	}
	holds := func(run string) {
		require.Eventually(t, func() bool {
			j, err := contract.JobQuery.Ask(t.Context(), c, id)
			return err == nil && len(j.Active) > 0 && j.Active[0] == api.ActiveRun{Run: name + run}
		}, time.Minute, 100*time.Millisecond)
	}
	holds("first")
	require.NoError(t, contract.RunEndedSignal.Send(t.Context(), c, id, contract.RunEnded{Run: name + "first"}))
	holds("second")
	require.NoError(t, c.TerminateWorkflow(t.Context(), contract.RunWorkflowID(name+"first"), "", "recorded"))
	require.NoError(t, contract.RunBeginsSignal.Send(t.Context(), c, id, contract.RunBegins{Run: name + "first"}))
	update(t, c, id, contract.DeleteJobUpdate.Name, contract.RunRequest{By: "ada"})
	closed(t, c, id)
	save(t, c, contract.JobWorkflow, "life", id)
}

// TestRecordJobSchedules records a job with a schedule that Temporal refuses, and its correction.
func TestRecordJobSchedules(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	name := plane.UniqueID("recorded")
	id := contract.JobWorkflowID(name)
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: contract.WorkerQueue},
		contract.JobWorkflow, contract.JobInput{Name: name})
	require.NoError(t, err)
	apply := func(schedule api.ScheduleTrigger, refused bool) {
		update(t, c, id, contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: api.JobDefinition{Job: "recorded",
			Cluster: "none", On: []api.JobTrigger{{Schedule: &schedule}}, Steps: map[string]*api.Step{
				"a": {Task: &api.TaskSpec{Type: "echo"}}}}, By: "ada"})
		require.Eventually(t, func() bool {
			j, err := contract.JobQuery.Ask(t.Context(), c, id)
			return err == nil && (j.Unscheduled != "") == refused
		}, time.Minute, 100*time.Millisecond)
	}
	apply(api.ScheduleTrigger{Interval: api.Duration(time.Millisecond)}, true)
	apply(api.ScheduleTrigger{Cron: "0 3 * * *"}, false)
	apply(api.ScheduleTrigger{Interval: api.Duration(time.Millisecond)}, true)
	update(t, c, id, contract.DeleteJobUpdate.Name, contract.RunRequest{By: "ada"})
	closed(t, c, id)
	save(t, c, contract.JobWorkflow, "schedules", id)
}
