package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// crew is a cluster whose agents run instances, with a ledger of their begins.
type crew struct {
	*client.Client
	node    *plane.Node
	cluster string

	offer *api.Inventory // what its agents offer

	mu      sync.Mutex
	begins  map[string][]string      // the agents on which an instance began, by the instance's name
	serving map[string][]string      // the agents on which an instance is now
	ends    map[string]chan struct{} // lets the handler of an agent return
	stays   []*stay                  // of instances that act
	die     chan struct{}            // lets actors end that die slowly
}

func newCrew(t *testing.T) *crew {
	t.Helper()
	c := &crew{node: plane.NewNode(t, plane.NodeOptions{}), begins: map[string][]string{}, serving: map[string][]string{},
		ends: map[string]chan struct{}{}, die: make(chan struct{})}
	c.cluster = c.node.EnsureCluster(t, api.ClusterConfig{RoleLease: api.Duration(1250 * time.Millisecond)})
	var err error
	c.Client, err = client.New(client.Options{URL: c.node.URL})
	require.NoError(t, err)
	return c
}

// agent starts an agent that serves instances until they are stopped, or ended.
func (c *crew) agent(t *testing.T, name string) (*running, *network) {
	t.Helper()
	n, end := newNetwork(), make(chan struct{})
	c.mu.Lock()
	c.ends[name] = end
	c.mu.Unlock()
	serve := func(ctx context.Context, task *agent.Task) (any, error) {
		_, instance, _ := job.CutInstanceID(task.ID)
		c.mu.Lock()
		c.begins[instance] = append(c.begins[instance], name)
		c.serving[instance] = append(c.serving[instance], name)
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			at := slices.Index(c.serving[instance], name)
			c.serving[instance] = slices.Delete(c.serving[instance], at, at+1)
		}()
		select {
		case <-end:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r := startAgent(t, agent.Options{HubURLs: []string{c.node.URL}, Cluster: c.cluster, ID: name, Slots: 16,
		StopTimeout: time.Millisecond, DialContext: n.dial, Resources: c.offer},
		map[string]agent.Handler{"serve": serve, "act": c.act(name), agent.ExecType: agent.ExecHandler()})
	require.Eventually(t, func() bool {
		status, _ := call(t, http.MethodGet, c.node.URL+"/api/v1/agents/"+name, nil, nil)
		return status == http.StatusOK
	}, patience, 10*time.Millisecond, "agent %s joins", name)
	return r, n
}

func (c *crew) apply(t *testing.T, kind api.JobType, more string) string {
	t.Helper()
	name := plane.UniqueID("j")
	c.define(t, name, kind, more)
	return name
}

func (c *crew) define(t *testing.T, name string, kind api.JobType, more string) {
	t.Helper()
	c.put(t, name, fmt.Sprintf("job: %s\ntype: %s\ncluster: %s\ninstances: {task: {type: serve}%s}\n", name, kind,
		c.cluster, more))
}

// put applies a definition, and deletes the job with the test.
func (c *crew) put(t *testing.T, name, definition string) {
	t.Helper()
	_, err := c.Jobs.Apply(t.Context(), name, []byte(definition), "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Jobs.Delete(context.WithoutCancel(t.Context()), name) })
}

// of are the agents on which an instance began, in order.
func (c *crew) of(instance string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.begins[instance]...)
}

// servers are the agents on which an instance is now.
func (c *crew) servers(instance string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.serving[instance]...)
}

func (c *crew) waitBegins(t *testing.T, instance string, n int) []string {
	t.Helper()
	require.Eventually(t, func() bool { return len(c.of(instance)) >= n }, patience, 5*time.Millisecond,
		"begin %d of instance %s", n, instance)
	return c.of(instance)
}

// await waits until the instances of a job are as wanted, as "0 running, 1 running".
func (c *crew) await(t *testing.T, name, want string) []api.JobInstance {
	t.Helper()
	var got string
	var all *api.JobInstances
	if !assertEventually(func() bool {
		var err error
		if all, err = c.Jobs.Instances(t.Context(), name); err != nil {
			got = err.Error()
			return false
		}
		var words []string
		for i := range all.Instances {
			words = append(words, all.Instances[i].Name+" "+string(all.Instances[i].Status))
		}
		got = strings.Join(words, ", ")
		return got == want
	}) {
		require.Failf(t, "not in time", "the instances of job %s are %q, not %q", name, got, want)
	}
	return all.Instances
}

// deployed waits until the deployment of a version is as wanted, and is the job's last.
func (c *crew) deployed(t *testing.T, name string, version int, want api.DeploymentStatus) (last *api.Deployment) {
	t.Helper()
	if !assertEventually(func() bool {
		all, err := c.Jobs.Instances(t.Context(), name)
		if err != nil {
			return false
		}
		last = all.Deployment
		return last != nil && last.Version == version && last.Status == want
	}) {
		require.Failf(t, "not in time", "the deployment of job %s is %+v, not that of version %d, %s", name, last, version,
			want)
	}
	return last
}

func (c *crew) found(t *testing.T, service string, q client.ServiceQuery) []api.ServiceInstance {
	t.Helper()
	found, err := c.Services.Get(t.Context(), service, q)
	require.NoError(t, err)
	return found.Instances
}

func assertEventually(done func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

func TestAServiceIsKeptRunning(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	a := plane.UniqueID("a")
	c.agent(t, a)
	name := c.apply(t, api.JobService, ", count: 2")
	require.Eventually(t, func() bool { // its hub tells a moment later who has it
		first := c.await(t, name, "0 running, 1 running")[0]
		return first.Agent == a && first.Attempts == 1 && first.Address != ""
	}, patience, 20*time.Millisecond)

	t.Log("an instance whose work ends begins again")
	close(c.ends[a])
	c.waitBegins(t, "0", 3)
	c.waitBegins(t, "1", 3)

	t.Log("scaled, stopped, resumed, deleted")
	_, err := c.Jobs.Scale(t.Context(), name, 0)
	require.NoError(t, err)
	c.await(t, name, "")
	_, err = c.Jobs.Scale(t.Context(), name, 1)
	require.NoError(t, err)
	c.waitBegins(t, "0", len(c.of("0"))+1)
	_, err = c.Jobs.Stop(t.Context(), name, "night")
	require.NoError(t, err)
	c.await(t, name, "")
	_, err = c.Jobs.Resume(t.Context(), name, "")
	require.NoError(t, err)
	c.waitBegins(t, "0", len(c.of("0"))+1)
	_, err = c.Jobs.Dispatch(t.Context(), name, api.DispatchRequest{})
	require.ErrorContains(t, err, "has instances")
	require.NoError(t, c.Jobs.Delete(t.Context(), name))
	require.Eventually(t, func() bool {
		_, err := c.Jobs.Get(t.Context(), name, 0)
		return err != nil
	}, patience, 20*time.Millisecond)
}

func TestAKilledAgentsInstanceBeginsElsewhere(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	first, second := plane.UniqueID("a"), plane.UniqueID("b")
	_, wire := c.agent(t, first)
	name := c.apply(t, api.JobService, ", count: 1, place: {affinity: "+first+"}")
	require.Equal(t, []string{first}, c.waitBegins(t, "0", 1))
	c.agent(t, second)
	_, err := c.Jobs.Scale(t.Context(), name, 4)
	require.NoError(t, err)
	c.await(t, name, "0 running, 1 running, 2 running, 3 running")
	before := map[string]string{}
	for _, instance := range []string{"0", "1", "2", "3"} {
		before[instance] = c.of(instance)[0]
	}
	wire.cut()
	require.Equal(t, []string{first, second}, c.waitBegins(t, "0", 2))
	c.await(t, name, "0 running, 1 running, 2 running, 3 running")
	for instance, agent := range before {
		if agent == second {
			require.Equal(t, []string{second}, c.of(instance), "instance %s was not touched", instance)
		}
	}
	t.Log("one instance is restarted, and no other")
	touched := len(c.of("1"))
	require.NoError(t, c.Jobs.Restart(t.Context(), name, "0", ""))
	c.waitBegins(t, "0", 3)
	c.await(t, name, "0 running, 1 running, 2 running, 3 running")
	require.Len(t, c.of("1"), touched)
}

func TestASystemJobHasAnInstanceOnEachAgent(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	a, b, late, away := plane.UniqueID("a"), plane.UniqueID("b"), plane.UniqueID("c"), plane.UniqueID("d")
	c.agent(t, a)
	leaves, _ := c.agent(t, b)
	_, wire := c.agent(t, away)
	wire.cut()
	require.Eventually(t, func() bool {
		cut, err := c.Agents.Get(t.Context(), away, false)
		return err == nil && cut.Status == api.AgentOffline
	}, patience, 50*time.Millisecond)
	name := c.apply(t, api.JobSystem, "")
	listed := c.await(t, name, a+" running, "+b+" running")
	require.Equal(t, name+"~~"+a+".", listed[0].TaskID[:len(name+a)+3], "the id of the task has the agent")

	t.Log("one that joins gets one at once, and the others keep theirs")
	c.agent(t, late)
	joined := time.Now()
	c.waitBegins(t, late, 1)
	require.Less(t, time.Since(joined), 10*time.Second, "within 2 s where the machine is idle")
	c.await(t, name, a+" running, "+b+" running, "+late+" running")

	t.Log("one that leaves loses its own; work that ends begins again on its agent")
	leaves.stop(t)
	c.await(t, name, a+" running, "+late+" running")
	close(c.ends[a])
	require.Equal(t, []string{a, a}, c.waitBegins(t, a, 2)[:2])
	require.Equal(t, []string{late}, c.of(late))
	require.Len(t, c.of(b), 1)
}

func TestASysbatchJobRunsOnceOnEachAgent(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	a, b, late, tooLate := plane.UniqueID("a"), plane.UniqueID("b"), plane.UniqueID("c"), plane.UniqueID("d")
	c.agent(t, a)
	c.agent(t, b)
	name := c.apply(t, api.JobSysbatch, "")
	c.await(t, name, a+" running, "+b+" running")
	close(c.ends[a])
	c.await(t, name, a+" completed, "+b+" running")
	c.agent(t, late)
	c.waitBegins(t, late, 1)
	close(c.ends[b])
	close(c.ends[late])
	c.await(t, name, a+" completed, "+b+" completed, "+late+" completed")
	c.agent(t, tooLate)
	second := c.apply(t, api.JobSysbatch, "")
	c.waitBegins(t, tooLate, 1)
	c.await(t, second, a+" completed, "+b+" completed, "+late+" completed, "+tooLate+" running")
	c.await(t, name, a+" completed, "+b+" completed, "+late+" completed")
	require.Len(t, c.of(a), 2, "once of each job")
}

// TestRequiredServicesAreWaitedFor: none begins, and their job says what is missing, until a healthy instance of the
// service is there.
func TestRequiredServicesAreWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	c.agent(t, plane.UniqueID("a"))
	service, name := plane.UniqueID("db"), plane.UniqueID("j")
	c.actors(t, name, api.JobService, "well", "", "requires: {services: ["+service+"]}")
	var all *api.JobInstances
	require.Eventually(t, func() bool {
		var err error
		all, err = c.Jobs.Instances(t.Context(), name)
		return err == nil && (all.Why != "" || len(all.Instances) > 0)
	}, patience, 20*time.Millisecond)
	why := "it waits until a healthy instance of each required service is there: none of " + service
	require.Equal(t, why, all.Why)
	batch := plane.UniqueID("j")
	_, err := c.Jobs.Apply(t.Context(), batch, fmt.Appendf(nil,
		`{job: %s, cluster: %s, requires: {services: [%s]}, steps: {a: {task: {type: exec, payload: {command: ["true"]}}}}}`,
		batch, c.cluster, service), "")
	require.NoError(t, err)
	begun, err := c.Jobs.Dispatch(t.Context(), batch, api.DispatchRequest{})
	require.NoError(t, err)
	run := func(status api.RunStatus, why string) {
		require.Eventually(t, func() bool {
			r, err := c.Runs.Get(t.Context(), begun.ID, 0)
			return err == nil && r.Status == status && r.Why == why
		}, patience, 20*time.Millisecond)
	}
	run(api.RunBlocked, why)
	health, sick := checked(t)
	sick.Store(true)
	c.actors(t, service, api.JobService, "well", ", service: {name: "+service+"}"+health("/turns", ""), "")
	require.Eventually(t, func() bool {
		found := c.found(t, service, client.ServiceQuery{Any: true})
		return len(found) == 1 && found[0].Health == api.InstanceFailing
	}, patience, 50*time.Millisecond)
	require.Empty(t, c.acted(name, 1))
	sick.Store(false)
	c.await(t, name, "0 running")
	c.untouched(t, name, 1, 1)
	run(api.RunCompleted, "")
}

func TestExamplesOfInstances(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	a := plane.UniqueID("a")
	c.agent(t, a)
	for file, want := range map[string]string{"service": "0 running, 1 running", "system": a + " running",
		"sysbatch": a + " completed"} {
		text, err := os.ReadFile("../../examples/jobs/" + file + ".yaml")
		require.NoError(t, err)
		_, name, _ := strings.Cut(strings.SplitN(string(text), "\n", 2)[0], ": ")
		_, err = c.Jobs.Apply(t.Context(), name, []byte(strings.ReplaceAll(string(text), "cluster: default",
			"cluster: "+c.cluster)), "")
		require.NoError(t, err)
		c.await(t, name, want)
		require.NoError(t, c.Jobs.Delete(t.Context(), name))
	}
}

// rolling is a service of three instances whose new versions take their place one after the other.
func rolling(service, tag, more, update string) string {
	return ", count: 3, service: {name: " + service + ", tags: [" + tag + "]}" + more +
		"}\nupdate: {healthy_after: 200ms" + update
}

func TestARollingUpdateNeverHasFewerHealthyInstances(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	a := plane.UniqueID("a")
	c.agent(t, a)
	c.agent(t, plane.UniqueID("b"))
	service := plane.UniqueID("s")
	name := c.apply(t, api.JobService, rolling(service, "v1", "", ""))
	found := func(q client.ServiceQuery) []api.ServiceInstance { return c.found(t, service, q) }
	c.deployed(t, name, 1, api.DeploymentSuccessful)
	require.Eventually(t, func() bool { return len(found(client.ServiceQuery{})) == 3 }, patience, 50*time.Millisecond)

	t.Log("a canary, and then the others")
	c.define(t, name, api.JobService, rolling(service, "v2", "", ", canary: 1"))
	c.deployed(t, name, 2, api.DeploymentWaiting)
	require.Eventually(t, func() bool { return len(found(client.ServiceQuery{Role: api.RoleCanary})) == 1 }, patience,
		50*time.Millisecond)
	require.Len(t, found(client.ServiceQuery{Role: api.RoleStable}), 3)
	drain, err := c.Agents.Drain(t.Context(), a, api.DrainRequest{})
	require.NoError(t, err)
	least := 3
	require.Eventually(t, func() bool {
		least = min(least, len(found(client.ServiceQuery{})))
		drain, err = c.Drains.Get(t.Context(), drain.ID)
		return err == nil && drain.CompletedAt != nil
	}, patience, 50*time.Millisecond)
	require.Zero(t, drain.Agents[0].Moved)
	require.Positive(t, drain.Agents[0].Replaced)
	c.deployed(t, name, 2, api.DeploymentWaiting)
	_, err = c.Jobs.Promote(t.Context(), name, "")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		least = min(least, len(found(client.ServiceQuery{})))
		return len(found(client.ServiceQuery{Tag: "v2", Role: api.RoleStable})) == 3
	}, patience, 100*time.Millisecond)
	c.deployed(t, name, 2, api.DeploymentSuccessful)
	require.Equal(t, 3, least)
}

func TestADrainKnowsKindsOfWork(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	a, b := plane.UniqueID("a"), plane.UniqueID("b")
	c.agent(t, a)
	service, system := c.apply(t, api.JobService, ", count: 1"), c.apply(t, api.JobSystem, "")
	c.waitBegins(t, "0", 1)
	c.waitBegins(t, a, 1)
	c.agent(t, b)
	c.waitBegins(t, b, 1)

	t.Log("a dry run tells what then happens")
	plan, err := c.Agents.Drain(t.Context(), a, api.DrainRequest{DryRun: true})
	require.NoError(t, err)
	byKind := func(r *api.DrainRecord) map[string]api.DrainWork {
		kinds := map[string]api.DrainWork{}
		for _, w := range r.Agents[0].Work {
			kinds[w.Kind] = w
		}
		return kinds
	}
	kinds := byKind(plan)
	require.Len(t, kinds, 2)
	require.Equal(t, cluster.DrainsService, kinds["service"].AtDeadline)
	require.True(t, kinds["system"].Ignored)
	require.Equal(t, []string{a}, c.of("0"), "nothing has moved")

	record, err := c.Agents.Drain(t.Context(), a, api.DrainRequest{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		record, err = c.Drains.Get(t.Context(), record.ID)
		return err == nil && record.CompletedAt != nil
	}, patience, 20*time.Millisecond, "long before its deadline")
	require.Equal(t, []int{1, 0, 1}, []int{record.Agents[0].Replaced, record.Agents[0].Moved, record.Agents[0].Ignored})
	require.Equal(t, []string{a, b}, c.of("0"))
	require.Equal(t, b, c.await(t, service, "0 running")[0].Agent)
	c.await(t, system, a+" running, "+b+" running")
	require.Len(t, c.of(a), 1, "what each agent has stays")
}
