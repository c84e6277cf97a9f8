package e2e

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/flow"
	"mainstay.dev/mainstay/job"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/mainstay/testsuite/slow"
)

// Temporal terminates a workflow with 8 MiB of mutable state, where it keeps the newest heartbeat of each attempt: not a
// run whose agents report as much as they may.
func TestARunOfLargeHeartbeats(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	reported := make(chan struct{})
	run := runOf(t, "for_each: {count: 100}, max_parallel: 100", func(ctx context.Context, task *agent.Task) (any, error) {
		assert.NoError(t, task.SaveCheckpoint(strings.Repeat("x", fleet.MaxCheckpointBytes-2)))
		for {
			task.ReportProgress(fleet.Progress{Percent: rand.IntN(4) * 25, Step: strings.Repeat("\x01", 200),
				Message: strings.Repeat("\x01", 1000)})
			select {
			case <-reported:
				return 1, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Second): // each mark is of another heartbeat
			}
		}
	})
	require.Eventually(t, func() bool {
		seen, err := plane.Temporal(t).DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		if err != nil {
			return false
		}
		large := 0
		for _, a := range seen.GetPendingActivities() {
			var report contract.AttemptReport
			if contract.Payloads.FromPayloads(a.GetHeartbeatDetails(), &report) == nil && len(report.Marks) == 16 {
				large++
			}
		}
		return large == 100
	}, 2*patience, 200*time.Millisecond)
	close(reported)
	var ledger contract.RunLedger
	require.NoError(t, run.Get(t.Context(), &ledger))
	require.Equal(t, job.RunCompleted, ledger.Status, ledger.Why)
}

// Temporal terminates a workflow with 50 MiB of history: not a run whose attempts fail again and again, and leave as
// much as they may.
func TestARunOfLargeFailures(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	run := runOf(t, "for_each: {count: 100}, max_parallel: 100, retry: {max_attempts: 8, initial_interval: 10ms}",
		func(_ context.Context, task *agent.Task) (any, error) {
			for range 16 {
				task.Log(strings.Repeat("x", 4<<10))
			}
			return nil, errors.New(strings.Repeat("x", 8000))
		})
	err := run.Get(t.Context(), nil)
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, string(job.RunFailed), failed.Type())
	var ledger contract.RunLedger
	require.NoError(t, failed.Details(&ledger))
	require.Len(t, ledger.Steps[0].Elements, 100)
}

// runOf begins a run of one step on one agent.
func runOf(t *testing.T, step string, handler agent.Handler) client.WorkflowRun {
	t.Helper()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, fleet.ClusterConfig{})
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a"), Slots: 100},
		map[string]agent.Handler{"work": handler})
	_, plan, err := flow.Read("job.yaml", []byte("job: large\ncluster: "+cluster+"\nsafety: idempotent\nsteps: {a: {"+step+
		", task: {type: work}}}\n"))
	require.NoError(t, err)
	in := contract.RunInput{Plan: *plan}
	begin := contract.StartOfRun(plane.UniqueID("large"), &in, 0)
	run, err := plane.Temporal(t).ExecuteWorkflow(t.Context(), begin.Options(), contract.RunWorkflow, in)
	require.NoError(t, err)
	return run
}
