package replay

import (
	"context"
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

// TestRecordInstances records a service that is scaled, replaced and stopped, a system job whose cluster changes, and
// an instance. It only runs when asked.
func TestRecordInstances(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "instances", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "instances"})
	serve := map[string]agent.Handler{"serve": untilStopped}
	defer runAgent(t, node, cluster, "i-1", serve)()
	start := func(name string) string {
		id := contract.JobWorkflowID(name)
		_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: contract.WorkerQueue},
			contract.JobWorkflow, contract.JobInput{Name: name})
		require.NoError(t, err)
		return id
	}
	apply := func(id, name, kind, more string) {
		definition, _, err := flow.Read("job.yaml", []byte("job: "+name+"\ntype: "+kind+"\ncluster: instances\n"+
			"instances: {task: {type: serve}"+more+"}\n"))
		require.NoError(t, err)
		update(t, c, id, contract.ApplyJobUpdate.Name, contract.ApplyJob{Definition: *definition, By: "ada"})
	}
	opened := func(id string, n int) (open []api.Instance) {
		require.Eventually(t, func() bool {
			j, err := contract.JobQuery.Ask(t.Context(), c, id)
			open = nil
			for _, i := range j.Instances {
				if i.Open() && i.Started && i.Stopping == "" {
					open = append(open, i)
				}
			}
			return err == nil && len(open) == n
		}, time.Minute, 50*time.Millisecond)
		return open
	}
	service := start("recorded-service")
	apply(service, "recorded-service", "service", ", count: 2")
	first := opened(service, 2)[0]
	await(t, c, first.TaskID, api.TaskQueued)
	update(t, c, service, contract.ScaleJobUpdate.Name, contract.ScaleJob{Count: 1})
	opened(service, 1)
	apply(service, "recorded-service", "service", ", count: 1, place: {affinity: i-1}")
	require.Eventually(t, func() bool { return opened(service, 1)[0].TaskID != first.TaskID }, time.Minute,
		50*time.Millisecond)
	update(t, c, service, contract.StopJobUpdate.Name, contract.RunRequest{By: "ada"})
	opened(service, 0)

	system := start("recorded-system")
	apply(system, "recorded-system", "system", "")
	opened(system, 1)
	stop := runAgent(t, node, cluster, "i-2", serve)
	opened(system, 2)
	stop()
	opened(system, 1)
	for _, id := range []string{service, system} {
		update(t, c, id, contract.DeleteJobUpdate.Name, contract.RunRequest{By: "ada"})
		closed(t, c, id)
	}
	save(t, c, contract.JobWorkflow, "service", service)
	save(t, c, contract.JobWorkflow, "system", system)
	save(t, c, contract.TaskWorkflow, "instance", contract.TaskWorkflowID(first.TaskID))
	save(t, c, contract.ClusterWorkflow, "watched", contract.ClusterWorkflowID(cluster))
}

// untilStopped is an instance's handler.
func untilStopped(ctx context.Context, _ *agent.Task) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
