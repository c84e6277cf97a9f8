package replay

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// TestRecordRunArrays records runs with a step of many elements, and their arrays. It only runs when asked.
func TestRecordRunArrays(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "runarrays", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "runs", MinAgents: 1})
	begun := make(chan struct{}, 1000)
	stop := runAgent(t, node, cluster, "ra-1", map[string]agent.Handler{
		"echo": func(_ context.Context, task *agent.Task) (any, error) { return task.Payload, nil },
		"fail": func(_ context.Context, task *agent.Task) (any, error) {
			if *task.Element == 7 {
				return nil, errors.New("disk full")
			}
			return *task.Element, nil
		},
		"slow": func(ctx context.Context, task *agent.Task) (any, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	defer stop()
	startRun(t, c, "many", `  a: {for_each: {count: 120}, task: {type: echo, payload: "${index}"}, output: {n: size(results)}}
  b: {after: [a], task: {type: echo, payload: "${steps.a.output.n}"}}
`)
	startRun(t, c, "many-tolerated", `  a: {for_each: {count: 120}, tolerate: 1%, retry: {max_attempts: 1}, task: {type: fail}, output: {failed: failed}}
`)
	startRun(t, c, "many-cancelled", "  a: {for_each: {count: 120}, max_parallel: 1, task: {type: slow}}\n")
	<-begun
	update(t, c, contract.RunWorkflowID("many-cancelled"), contract.PauseRunUpdate.Name,
		contract.PauseRunRequest{Mode: api.PauseFinish})
	inState(t, c, "many-cancelled~a", api.ArrayPaused)
	update(t, c, contract.RunWorkflowID("many-cancelled"), contract.ResumeRunUpdate.Name, contract.RunRequest{})
	inState(t, c, "many-cancelled~a", api.ArrayRunning)
	update(t, c, contract.RunWorkflowID("many-cancelled"), contract.CancelRunUpdate.Name,
		contract.RunRequest{By: "ann", Reason: "not needed"})
	for id, want := range map[string]api.RunStatus{"many": api.RunCompleted, "many-tolerated": api.RunPartial,
		"many-cancelled": api.RunCancelled} {
		closed(t, c, contract.RunWorkflowID(id))
		l, err := contract.LedgerQuery.Ask(t.Context(), c, contract.RunWorkflowID(id))
		require.NoError(t, err)
		require.Equal(t, want, l.Status, "%s: %s", id, l.Why)
		save(t, c, contract.RunWorkflow, id, contract.RunWorkflowID(id))
		save(t, c, contract.ArrayWorkflow, id, contract.ArrayWorkflowID(id+"~a"))
	}
}
