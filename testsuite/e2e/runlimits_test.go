package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/flow"
	"mainstay.dev/mainstay/job"
	"mainstay.dev/mainstay/testsuite/plane"
)

// Temporal ends a workflow whose answer to one workflow task has more than 4 MiB: a run begins that many payloads in
// several.
func TestRunBeginsMoreThanTemporalTakesAtOnce(t *testing.T) {
	t.Parallel()
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{})
	cluster := node.EnsureCluster(t, fleet.ClusterConfig{})
	startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: cluster, ID: plane.UniqueID("a"), Slots: 32},
		map[string]agent.Handler{"size": func(_ context.Context, task *agent.Task) (any, error) {
			return len(task.Payload), nil
		}})
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
	var ledger job.Ledger
	require.NoError(t, run.Get(t.Context(), &ledger))
	require.Equal(t, job.RunCompleted, ledger.Status, ledger.Why)
	for i := range ledger.Steps {
		require.Equal(t, 23, strings.Count(string(ledger.Steps[i].Output), "64002"))
	}
}
