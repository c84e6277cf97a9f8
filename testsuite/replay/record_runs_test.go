package replay

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

const recordedHead = "job: recorded\ncluster: runs\nsafety: idempotent\nretry: {max_attempts: 2, initial_interval: 10ms}\nsteps:\n"

// TestRecordRuns records runs of each kind of step and of each way to go on. It only runs when asked.
func TestRecordRuns(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "runs", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "runs", MinAgents: 1})
	handlers := map[string]agent.Handler{
		"echo": func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil },
		"fail": func(_ context.Context, task *agent.Task) (any, error) {
			if task.Attempt < 3 {
				return nil, errors.New("disk full")
			}
			return "done", nil
		},
		"slow": func(ctx context.Context, task *agent.Task) (any, error) {
			if task.Attempt > 1 {
				return "resumed", nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	stop := runAgent(t, node, cluster, "r-1", handlers)
	defer stop()
	step := func(id string, in contract.StepRequest) {
		in.By, in.Reason = "ann", "recorded"
		update(t, c, contract.RunWorkflowID(id), contract.StepUpdate.Name, in)
	}

	startRun(t, c, "diamond", `  a: {task: {type: echo, payload: {n: "${inputs.n}"}}}
  b: {after: [a], task: {type: echo, payload: "${steps.a.output.n}"}}
  c: {after: [a], for_each: "[1, 2, 3]", max_parallel: 2, task: {type: echo, payload: "${item}"}, output: {all: results}}
  d: {after: [b, c], if: inputs.n > 2, task: {type: echo, payload: "${steps.c.output.all}"}}
  e: {after: [d], if: inputs.n > 9, task: {type: echo}}
  f: {after: [e], wait: {for: 1s}}
`)
	startRun(t, c, "plain", `  a: {task: {type: echo, payload: {n: "${inputs.n}"}}}
  b: {after: [a], task: {type: echo, payload: "${steps.a.output.n}"}}
  c: {after: [b], approve: {message: go on}}
`)
	startRun(t, c, "held", `  a: {task: {type: fail}, on_failure: hold}
  b: {after: [a], task: {type: echo, payload: "${steps.a.output}"}}
`)
	startRun(t, c, "approved", `  a: {approve: {message: "go on with ${inputs.n}?"}}
  b: {after: [a], task: {type: echo}}
`)
	startRun(t, c, "partial", `  a: {task: {type: fail}, on_failure: partial}
  b: {after: [a], task: {type: echo}}
`)
	startRun(t, c, "paused", "  a: {task: {type: slow}}\n  b: {after: [a], task: {type: echo}}\n")
	startRun(t, c, "cancelled", "  a: {task: {type: slow}, deadline: 1h}\n")
	startRun(t, c, "late", "  a: {task: {type: slow}, deadline: 1s}\n")

	standing(t, c, "held", api.RunBlocked)
	step("held", contract.StepRequest{Step: "a", Action: api.RetryStep})
	standing(t, c, "approved", api.RunBlocked)
	step("approved", contract.StepRequest{Step: "a", Action: api.ApproveStep})
	standing(t, c, "plain", api.RunBlocked)
	step("plain", contract.StepRequest{Step: "c", Action: api.ApproveStep})
	standing(t, c, "paused", api.RunRunning)
	update(t, c, contract.RunWorkflowID("paused"), contract.PauseRunUpdate.Name,
		contract.PauseRunRequest{Mode: api.PauseStop})
	standing(t, c, "paused", api.RunPaused)
	update(t, c, contract.RunWorkflowID("paused"), contract.ResumeRunUpdate.Name, contract.RunRequest{})
	standing(t, c, "cancelled", api.RunRunning)
	update(t, c, contract.RunWorkflowID("cancelled"), contract.CancelRunUpdate.Name,
		contract.RunRequest{By: "ann", Reason: "not needed"})
	for id, want := range map[string]api.RunStatus{"diamond": api.RunCompleted, "plain": api.RunCompleted,
		"held": api.RunCompleted, "approved": api.RunCompleted, "partial": api.RunPartial,
		"paused": api.RunCompleted, "cancelled": api.RunCancelled, "late": api.RunFailed} {
		closed(t, c, contract.RunWorkflowID(id))
		l, err := contract.LedgerQuery.Ask(t.Context(), c, contract.RunWorkflowID(id))
		require.NoError(t, err)
		require.Equal(t, want, l.Status, "%s: %s", id, l.Why)
		save(t, c, contract.RunWorkflow, id, contract.RunWorkflowID(id))
	}
}

func startRun(t *testing.T, c client.Client, id, steps string) {
	t.Helper()
	startRunOf(t, c, id, steps, api.RunOrigin{By: "ann"})
}

func startRunOf(t *testing.T, c client.Client, id, steps string, origin api.RunOrigin) {
	t.Helper()
	_, plan, err := flow.Read("job.yaml", []byte(recordedHead+steps))
	require.NoError(t, err)
	in := contract.RunInput{Plan: *plan, Inputs: json.RawMessage(`{"n": 3}`), Origin: origin}
	begin := contract.StartOfRun(id, &in, 0)
	_, err = c.ExecuteWorkflow(t.Context(), begin.Options(), contract.RunWorkflow, in)
	require.NoError(t, err)
}

// standing waits until a run has a status, and its first step is with an agent if it is running.
func standing(t *testing.T, c client.Client, id string, status api.RunStatus) {
	t.Helper()
	require.Eventually(t, func() bool {
		l, err := contract.LedgerQuery.Ask(t.Context(), c, contract.RunWorkflowID(id))
		if err != nil || l.Status != status {
			return false
		}
		d, err := c.DescribeWorkflowExecution(t.Context(), contract.RunWorkflowID(id), "")
		return status != api.RunRunning || err == nil && len(d.GetPendingActivities()) == 1 &&
			d.GetPendingActivities()[0].GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED
	}, time.Minute, 50*time.Millisecond, id)
}
