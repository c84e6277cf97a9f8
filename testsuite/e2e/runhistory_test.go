package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// Temporal terminates a workflow with 50 MiB of history: not a run whose attempts fail again and again, and leave as
// much as they may.
func TestARunOfLargeFailures(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, api.ClusterConfig{})
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a"), Slots: 100},
		map[string]agent.Handler{"fail": func(_ context.Context, task *agent.Task) (any, error) {
			for range 16 {
				task.Log(strings.Repeat("x", 4<<10))
			}
			return nil, errors.New(strings.Repeat("x", 8000))
		}})
	_, plan, err := flow.Read("job.yaml", []byte("job: large\ncluster: "+cluster+"\nsafety: idempotent\n"+
		"steps: {a: {for_each: {count: 100}, max_parallel: 100, retry: {max_attempts: 8, initial_interval: 10ms}, "+
		"task: {type: fail}}}\n"))
	require.NoError(t, err)
	in := contract.RunInput{Plan: *plan}
	begin := contract.StartOfRun(plane.UniqueID("large"), &in, 0)
	run, err := plane.Temporal(t).ExecuteWorkflow(t.Context(), begin.Options(), contract.RunWorkflow, in)
	require.NoError(t, err)
	err = run.Get(t.Context(), nil)
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, string(api.RunFailed), failed.Type())
	var ledger job.Ledger
	require.NoError(t, failed.Details(&ledger))
	require.Len(t, ledger.Steps[0].Elements, 100)
}
