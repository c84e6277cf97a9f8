package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// Temporal ends a workflow whose answer to one workflow task has more than 4 MiB: a run begins that many payloads in
// several.
func TestRunBeginsMoreThanTemporalTakesAtOnce(t *testing.T) {
	t.Parallel()
	ledger := runLarge(t, func(_ context.Context, task *agent.Task) (any, error) { return len(task.Payload), nil },
		func(string) {})
	require.Equal(t, api.RunCompleted, ledger.Status, ledger.Why)
	for i := range ledger.Steps {
		require.Equal(t, 23, strings.Count(string(ledger.Steps[i].Output), "64002"))
	}
}

// So it is when all of them begin again, after a pause.
func TestRunResumesMoreThanTemporalTakesAtOnce(t *testing.T) {
	t.Parallel()
	resumed := make(chan struct{})
	ledger := runLarge(t, func(ctx context.Context, _ *agent.Task) (any, error) {
		select {
		case <-resumed:
			return true, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}, func(run string) {
		c := plane.Temporal(t)
		require.Eventually(t, func() bool {
			l, err := contract.LedgerQuery.Ask(t.Context(), c, run)
			open := 0
			for i := range l.Steps {
				for _, e := range l.Steps[i].Elements {
					if e.StartedAt != nil {
						open++
					}
				}
			}
			return err == nil && open == 4*23
		}, time.Minute, 100*time.Millisecond)
		_, err := contract.PauseRunUpdate.Send(t.Context(), c, run, contract.PauseRunRequest{Mode: api.PauseStop})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			l, err := contract.LedgerQuery.Ask(t.Context(), c, run)
			return err == nil && l.Status == api.RunPaused
		}, time.Minute, 100*time.Millisecond)
		_, err = contract.ResumeRunUpdate.Send(t.Context(), c, run, contract.RunRequest{})
		require.NoError(t, err)
		close(resumed)
	})
	require.Equal(t, api.RunCompleted, ledger.Status, ledger.Why)
}

// Temporal ends a workflow whose state has more than 8 MiB, with the newest heartbeats of all its attempts under way.
func TestRunOfAgentsThatSayMuch(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	heard := make(chan struct{})
	handlers := map[string]agent.Handler{"tell": func(ctx context.Context, task *agent.Task) (any, error) {
		if err := task.SaveCheckpoint(strings.Repeat("x", api.MaxCheckpointBytes-2)); err != nil {
			return nil, err
		}
		for n := 0; ; n++ {
			task.ReportProgress(api.Progress{Step: strings.Repeat(string(rune('a'+n%26)), 200),
				Message: strings.Repeat("\x01", 1000)})
			select {
			case <-heard:
				return true, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(200 * time.Millisecond):
			}
		}
	}}
	for range 10 {
		startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a"),
			Slots: job.MaxParallel / 10}, handlers)
	}
	_, plan, err := flow.Read("job.yaml", fmt.Appendf(nil, "job: tell\ncluster: %s\nsafety: idempotent\nsteps:\n"+
		"  a: {for_each: {count: %[2]d}, max_parallel: %[2]d, task: {type: tell}}\n", cluster, job.MaxParallel))
	require.NoError(t, err)
	in := contract.RunInput{Plan: *plan}
	begin := contract.StartOfRun(plane.UniqueID("tell"), &in, 0)
	run, err := c.ExecuteWorkflow(t.Context(), begin.Options(), contract.RunWorkflow, in)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		seen, err := c.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		told := 0
		for _, a := range seen.GetPendingActivities() {
			var report contract.AttemptReport
			p := a.GetHeartbeatDetails().GetPayloads()
			if len(p) > 0 && contract.Decode(p[0], &report) && len(report.Marks) == 16 {
				told++
			}
		}
		return err == nil && told == job.MaxParallel
	}, 2*time.Minute, 200*time.Millisecond)
	close(heard)
	var ledger job.Ledger
	require.NoError(t, run.Get(t.Context(), &ledger))
	require.Equal(t, api.RunCompleted, ledger.Status, ledger.Why)
}

// runLarge carries out a run of 92 tasks with 64 KB of payload each. meanwhile gets its workflow's id.
func runLarge(t *testing.T, handler agent.Handler, meanwhile func(run string)) (ledger job.Ledger) {
	t.Helper()
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a"), Slots: 32},
		map[string]agent.Handler{"size": handler})
	text := "job: large\ncluster: " + cluster + "\nsafety: idempotent\nsteps:\n"
	for _, step := range []string{"a", "b", "c", "d"} {
		text += "  " + step + `: {for_each: {count: 23}, task: {type: size, payload: "${inputs.v}"}, output: {sizes: results}}` + "\n"
	}
	_, plan, err := flow.Read("job.yaml", []byte(text))
	require.NoError(t, err)
	inputs, err := json.Marshal(map[string]string{"v": strings.Repeat("x", 64_000)})
	require.NoError(t, err)
	in := contract.RunInput{Plan: *plan, Inputs: inputs}
	begin := contract.StartOfRun(plane.UniqueID("large"), &in, 0)
	run, err := c.ExecuteWorkflow(t.Context(), begin.Options(), contract.RunWorkflow, in)
	require.NoError(t, err)
	meanwhile(run.GetID())
	require.NoError(t, run.Get(t.Context(), &ledger))
	return ledger
}
