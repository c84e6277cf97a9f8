package replay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// TestRecordDeployments records deployments of a service: one that is promoted, one that is put back by its deadline,
// one that a person ends, and one whose place another version takes. It only runs when asked.
func TestRecordDeployments(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "deployments", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "deployments"})
	defer runAgent(t, node, cluster, "d-1", map[string]agent.Handler{"serve": untilStopped})()
	const name = "recorded-deployments"
	id := contract.JobWorkflowID(name)
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: contract.WorkerQueue},
		contract.JobWorkflow, contract.JobInput{Name: name})
	require.NoError(t, err)
	apply := func(payload, more, within string) {
		definition, _, err := flow.Read("job.yaml", []byte("job: "+name+"\ntype: service\ncluster: deployments\n"+
			"instances: {count: 2, task: {type: serve, payload: {version: "+payload+"}}, place: {"+more+"}}\n"+
			"update: {canary: 1, healthy_after: 200ms, healthy_within: "+within+", revert: true}"))
		require.NoError(t, err)
		update(t, c, id, contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: *definition, By: "ada"})
	}
	becomes := func(version int, status api.DeploymentStatus) {
		require.Eventually(t, func() bool {
			j, err := contract.JobQuery.Ask(t.Context(), c, id)
			d := j.Deployment()
			return err == nil && d != nil && d.Version == version && d.Status == status
		}, time.Minute, 50*time.Millisecond, "version %d is %s", version, status)
	}
	by := contract.RunRequest{By: "ada", Reason: "recorded"}
	apply("1", "", "1m")
	becomes(1, api.DeploymentSuccessful)
	apply("2", "", "1m")
	becomes(2, api.DeploymentWaiting)
	update(t, c, id, contract.PromoteJobUpdate.Name, by)
	becomes(2, api.DeploymentSuccessful)
	apply("3", "capabilities: [none-has]", "1s")
	becomes(4, api.DeploymentSuccessful)
	apply("5", "", "1m")
	becomes(5, api.DeploymentWaiting)
	update(t, c, id, contract.FailDeploymentUpdate.Name, by)
	becomes(6, api.DeploymentSuccessful)
	apply("7", "capabilities: [none-has]", "1m")
	becomes(7, api.DeploymentRunning)
	apply("8", "", "1m")
	becomes(8, api.DeploymentWaiting)
	update(t, c, id, contract.DeleteJobUpdate.Name, by)
	closed(t, c, id)
	save(t, c, contract.JobWorkflow, "deployments", id)
}
