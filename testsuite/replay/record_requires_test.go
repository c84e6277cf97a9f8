package replay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// TestRecordRequires records a service and a run that wait until another service is there. It only runs when asked.
func TestRecordRequires(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	node := plane.NewNode(t, plane.NodeOptions{HubID: "requires", Config: hub.Config{Timing: plane.QuickTiming()}})
	cluster := node.EnsureCluster(t, api.ClusterConfig{Name: "requires"})
	defer runAgent(t, node, cluster, "r-1", map[string]agent.Handler{"serve": untilStopped})()
	jobs := (store.Store{Client: c, Namespace: client.DefaultNamespace}).Jobs()
	apply := func(name, more string) string {
		definition, _, err := flow.Read("job.yaml", []byte("job: "+name+"\ntype: service\ncluster: requires\n"+more))
		require.NoError(t, err)
		_, err = jobs.Apply(t.Context(), name, contract.ApplyJob{Definition: *definition, By: "ada"},
			func(string) error { return nil })
		require.NoError(t, err)
		return contract.JobWorkflowID(name)
	}
	becomes := func(id string, is func(*job.Job) bool) {
		require.Eventually(t, func() bool {
			j, err := contract.JobQuery.Ask(t.Context(), c, id)
			return err == nil && is(&j)
		}, time.Minute, 50*time.Millisecond, id)
	}
	web := apply("recorded-web", "instances: {task: {type: serve}}\nrequires: {services: [recorded-db]}\nupdate: {healthy_after: 200ms}")
	becomes(web, func(j *job.Job) bool { return len(j.Missing) == 1 && len(j.Instances) == 0 && j.Waiting() != "" })
	_, plan, err := flow.Read("job.yaml", []byte("job: recorded-build\ncluster: requires\nrequires: {services: [recorded-db]}\nsteps: {a: {wait: {for: 1s}}}\n"))
	require.NoError(t, err)
	in := contract.RunInput{Plan: *plan, Origin: api.RunOrigin{By: "ada"}}
	begin := contract.StartOfRun("requires", &in, 0)
	_, err = c.ExecuteWorkflow(t.Context(), begin.Options(), contract.RunWorkflow, in)
	require.NoError(t, err)
	standing(t, c, "requires", api.RunBlocked)
	db := apply("recorded-store", "instances: {task: {type: serve}, service: {name: recorded-db}}")
	becomes(web, func(j *job.Job) bool { return j.Passing() == 1 && j.Waiting() == "" })
	becomes(web, func(j *job.Job) bool { return j.Deployment().Status == api.DeploymentSuccessful })
	closed(t, c, contract.RunWorkflowID("requires"))
	save(t, c, contract.RunWorkflow, "requires", contract.RunWorkflowID("requires"))
	for _, id := range []string{web, db} {
		update(t, c, id, contract.DeleteJobUpdate.Name, contract.RunRequest{By: "ada", Reason: "recorded"})
		closed(t, c, id)
	}
	save(t, c, contract.JobWorkflow, "requires", web)
}
