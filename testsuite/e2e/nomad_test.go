package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/freeport"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// Each test here is named after an issue of another orchestrator, whose users ask for what the test shows: Nomad 6864 is
// https://github.com/hashicorp/nomad/issues/6864. docs/SERVICES.md describes the behaviour.

// Updates that count an instance as healthy soon, and that give up soon.
const (
	quickly = "healthy_after: 200ms"
	hasty   = "healthy_after: 1s, healthy_within: 2s"
)

// stay is one time that an instance acts.
type stay struct {
	job, instance, agent string
	version, port        int
	ended                bool
	unbound              error // why it could not listen on its port
}

// act is a handler whose instances do as their payload says: well, slow (which end only when they are let), crash,
// crash-for-good, or 2-crashes. They listen on the port that they are given.
func (c *crew) act(agentID string) agent.Handler {
	return func(ctx context.Context, task *agent.Task) (any, error) {
		var as string
		if err := json.Unmarshal(task.Payload, &as); err != nil {
			return nil, err
		}
		i := task.Instance
		s := &stay{job: i.Job, instance: i.Name, agent: agentID, version: i.Version}
		if task.Allocation != nil && task.Allocation.Ports != nil {
			s.port = task.Allocation.Ports["http"]
			listener, err := net.Listen("tcp", ":"+strconv.Itoa(s.port))
			if s.unbound = err; err == nil {
				defer listener.Close()
			}
		}
		c.mu.Lock()
		c.stays = append(c.stays, s)
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			s.ended = true
		}()
		switch {
		case s.unbound != nil:
			return nil, s.unbound
		case as == "crash", as == "2-crashes" && i.Name == "2":
			return nil, errors.New("no luck")
		case as == "crash-for-good":
			return nil, agent.NonRetryable(errors.New("no such image"))
		}
		<-ctx.Done()
		if as == "slow" {
			<-c.die
		}
		return nil, ctx.Err()
	}
}

// actors defines a job whose instances act.
func (c *crew) actors(t *testing.T, name string, kind api.JobType, as, instances, more string) {
	t.Helper()
	c.put(t, name, fmt.Sprintf("job: %s\ntype: %s\ncluster: %s\ninstances: {task: {type: act, payload: %s}%s}\n%s\n", name,
		kind, c.cluster, as, instances, more))
}

// acted are the times that instances of a version acted, in order.
func (c *crew) acted(name string, version int) (acted []stay) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stays {
		if s.job == name && s.version == version {
			acted = append(acted, *s)
		}
	}
	return acted
}

// untouched checks that each of a version's n instances began once, and none has ended.
func (c *crew) untouched(t *testing.T, name string, version, n int) {
	t.Helper()
	var acted []stay
	assertEventually(func() bool { // an attempt is told of a moment before it begins
		acted = c.acted(name, version)
		return len(acted) >= n
	})
	require.Len(t, acted, n, "begins of version %d of job %s", version, name)
	require.False(t, slices.ContainsFunc(acted, func(s stay) bool { return s.ended }), "%+v", acted)
}

// why waits until an instance of a job says why it waits, with words.
func (c *crew) why(t *testing.T, name, words string) {
	t.Helper()
	var all *api.JobInstances
	if !assertEventually(func() bool {
		var err error
		all, err = c.Jobs.Instances(t.Context(), name)
		return err == nil && slices.ContainsFunc(all.Instances, func(i api.JobInstance) bool {
			return strings.Contains(i.Why, words)
		})
	}) {
		require.Failf(t, "not in time", "the instances of job %s say nothing of %q: %+v", name, words, all)
	}
}

// checked makes health checks over HTTP, by the instances' paths: /well, /sick, /flaps, or /turns, which fails once sick
// is set.
func checked(t *testing.T) (health func(path, more string) string, sick *atomic.Bool) {
	t.Helper()
	sick = &atomic.Bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sick" || r.URL.Path == "/flaps" && time.Now().UnixMilli()/250%2 == 0 || r.URL.Path == "/turns" && sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	return func(path, more string) string {
		return ", health: {http: {port: " + port + ", path: " + path + "}, interval: 100ms, on_unhealthy: none" + more + "}"
	}, sick
}

// freePorts is the first of n free ports in a row.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	first, err := freeport.Row(n)
	require.NoError(t, err)
	return first
}

func TestNomad6864HealthyInstancesAreNotStoppedWhileNewOnesFail(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	for range 2 {
		c.agent(t, plane.UniqueID("a"))
	}
	health, _ := checked(t)
	for how, v2 := range map[string][]string{
		"they crash":           {"crash", health("/well", "")},
		"they crash for good":  {"crash-for-good", health("/well", "")},
		"they are never well":  {"well", health("/sick", "")},
		"they flap":            {"well", health("/flaps", ", unhealthy_after: 1")},
		"they run on no agent": {"well", health("/well", "") + ", place: {capabilities: [none-has]}"},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			name := plane.UniqueID("j")
			c.actors(t, name, api.JobService, "well", ", count: 3"+health("/well", ""), "update: {"+quickly+"}")
			c.deployed(t, name, 1, api.DeploymentSuccessful)
			c.actors(t, name, api.JobService, v2[0], ", count: 3"+v2[1], "update: {max_parallel: 2, "+hasty+"}")
			require.Contains(t, c.deployed(t, name, 2, api.DeploymentFailed).Reason, "was not healthy within 2s")
			var left []api.JobInstance
			require.True(t, assertEventually(func() bool { // a check may be late where the machine is busy
				left = c.await(t, name, "0 running, 1 running, 2 running")
				return !slices.ContainsFunc(left, func(i api.JobInstance) bool {
					return i.Version != 1 || i.Health != api.InstancePassing
				})
			}), "%+v", left)
			c.untouched(t, name, 1, 3)
		})
	}
}

// TestNomad10465AFailedCanaryEndsTheDeployment: one that nothing tries again, one of a job that is scaled meanwhile
// (#20295), and one that was well and is not any more.
func TestNomad10465AFailedCanaryEndsTheDeployment(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	c.agent(t, plane.UniqueID("a"))
	health, sick := checked(t)
	begin := func(t *testing.T, as, update string) (name string) {
		name = plane.UniqueID("j")
		c.actors(t, name, api.JobService, "well", ", count: 3", "update: {"+quickly+"}")
		c.deployed(t, name, 1, api.DeploymentSuccessful)
		c.actors(t, name, api.JobService, as, ", count: 3"+health("/turns", ""), "update: {canary: 1, "+update+"}")
		return name
	}
	t.Run("it cannot run", func(t *testing.T) {
		t.Parallel()
		name := begin(t, "crash-for-good", "promote: auto, revert: true, "+hasty)
		require.True(t, c.deployed(t, name, 3, api.DeploymentSuccessful).Revert)
		c.await(t, name, "0 running, 1 running, 2 running")
		c.untouched(t, name, 1, 3)
	})
	t.Run("the job is scaled", func(t *testing.T) {
		t.Parallel()
		name := begin(t, "crash", "promote: auto, "+hasty)
		_, err := c.Jobs.Scale(t.Context(), name, 2)
		require.NoError(t, err)
		require.Contains(t, c.deployed(t, name, 2, api.DeploymentFailed).Reason, "instance 0 was not healthy")
		for _, i := range c.await(t, name, "0 running, 1 running") {
			require.Equal(t, 1, i.Version)
		}
	})
	t.Run("it was well", func(t *testing.T) {
		t.Parallel()
		name := begin(t, "well", quickly+", healthy_within: 10s")
		c.deployed(t, name, 2, api.DeploymentWaiting)
		c.untouched(t, name, 2, 1)
		sick.Store(true)
		require.Contains(t, c.deployed(t, name, 2, api.DeploymentFailed).Reason, "it is failing")
		c.untouched(t, name, 1, 3)
	})
}

func TestNomad10882ARevertIsImmediateAndHasNoCanaries(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	c.agent(t, plane.UniqueID("a"))
	name := plane.UniqueID("j")
	c.actors(t, name, api.JobService, "well", ", count: 2", "update: {canary: 1, "+quickly+"}")
	c.deployed(t, name, 1, api.DeploymentSuccessful)

	t.Log("after a failure nothing begins that still runs")
	c.actors(t, name, api.JobService, "crash", ", count: 2", "update: {canary: 1, revert: true, "+hasty+"}")
	revert := c.deployed(t, name, 3, api.DeploymentSuccessful)
	require.Less(t, revert.EndedAt.Sub(revert.StartedAt), 10*time.Second)
	require.True(t, revert.Revert)
	c.await(t, name, "0 running, 1 running")
	c.untouched(t, name, 1, 2)
	require.Empty(t, c.acted(name, 3))

	t.Log("what was promoted is put back, and nobody is asked for canaries")
	c.actors(t, name, api.JobService, "well", ", count: 2, service: {name: "+name+"}",
		"update: {canary: 1, promote: auto, "+quickly+"}")
	c.deployed(t, name, 4, api.DeploymentSuccessful)
	_, err := c.Jobs.Revert(t.Context(), name, 3)
	require.NoError(t, err)
	revert = c.deployed(t, name, 5, api.DeploymentSuccessful)
	require.Nil(t, revert.Promoted)
	require.Equal(t, []api.VersionCount{{Version: 5, Instances: 2, Healthy: 2}}, revert.Counts)
	c.untouched(t, name, 5, 2)
}

// TestNomad3644SystemJobsHaveDeploymentsHealthAndReverts (#4740).
func TestNomad3644SystemJobsHaveDeploymentsHealthAndReverts(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	agents := []string{plane.UniqueID("a"), plane.UniqueID("b"), plane.UniqueID("c")}
	for _, id := range agents {
		c.agent(t, id)
	}
	health, _ := checked(t)
	name := plane.UniqueID("j")
	c.actors(t, name, api.JobSystem, "well", health("/well", ""), "update: {"+quickly+"}")
	c.deployed(t, name, 1, api.DeploymentSuccessful)

	t.Log("one that is never well is put back, and only the first agent has seen it")
	c.actors(t, name, api.JobSystem, "well", health("/sick", ""), "update: {revert: true, "+hasty+"}")
	c.deployed(t, name, 3, api.DeploymentSuccessful)
	j, err := c.Jobs.Get(t.Context(), name, 0)
	require.NoError(t, err)
	failed := j.Deployments[1]
	require.Equal(t, api.DeploymentFailed, failed.Status)
	require.Contains(t, failed.Reason, "instance "+agents[0]+" was not healthy within 2s")
	require.Equal(t, 1, failed.RevertedTo)
	for _, s := range c.acted(name, 2) {
		require.Equal(t, agents[0], s.agent)
	}
	for _, s := range c.acted(name, 1) {
		require.Equal(t, s.agent == agents[0], s.ended, s.agent)
	}

	t.Log("one that is well is on one agent after the other")
	c.actors(t, name, api.JobSystem, "well", health("/well", ", unhealthy_after: 2"), "update: {"+quickly+"}")
	c.deployed(t, name, 4, api.DeploymentSuccessful)
	var order []string
	for _, s := range c.acted(name, 4) {
		order = append(order, s.agent)
	}
	require.Equal(t, agents, order)
	for _, i := range c.await(t, name, strings.Join(agents, " running, ")+" running") {
		require.Equal(t, api.InstancePassing, i.Health)
	}
}

func TestNomad3230UnhealthyInstancesAreReplacedFirst(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	c.agent(t, plane.UniqueID("a"))
	name := plane.UniqueID("j")
	c.actors(t, name, api.JobService, "2-crashes", ", count: 4",
		"recovery: {mode: local_restart, restart: {delay: 1h, max_delay: 1h}}")
	require.True(t, assertEventually(func() bool { // the job knows of each whether it is well
		for _, i := range c.await(t, name, "0 running, 1 running, 2 retry_wait, 3 running") {
			if (i.Instance.Health == api.InstancePassing) != (i.Name != "2") {
				return false
			}
		}
		return true
	}))
	c.actors(t, name, api.JobService, "well", ", count: 4", "update: {"+quickly+"}")
	c.deployed(t, name, 2, api.DeploymentSuccessful)
	var order []string
	for _, s := range c.acted(name, 2) {
		order = append(order, s.instance)
	}
	require.Equal(t, []string{"2", "0", "1", "3"}, order)
}

// TestNomad15603OnlyHealthyInstancesAreFound (#23317), and who waits for a change learns of it.
func TestNomad15603OnlyHealthyInstancesAreFound(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	a, service := plane.UniqueID("a"), plane.UniqueID("s")
	_, wire := c.agent(t, a)
	var sick atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	health := func(more string) string {
		return ", count: 1, service: {name: " + service + ", port: " + port + ", tags: [v1]}, health: {http: {port: " + port +
			"}, interval: 100ms, unhealthy_after: 2" + more + "}"
	}
	found := func(q client.ServiceQuery) []api.ServiceInstance { return c.found(t, service, q) }
	passing := func(n int) func() bool {
		return func() bool { return len(found(client.ServiceQuery{})) == n }
	}
	name := c.apply(t, api.JobService, health(", on_unhealthy: none"))
	require.Eventually(t, passing(1), patience, 50*time.Millisecond)
	one := found(client.ServiceQuery{Tag: "v1"})[0]
	require.Equal(t, []string{name, "0", a, "127.0.0.1:" + port}, []string{one.Job, one.Instance, one.Agent, one.Address})
	require.Empty(t, found(client.ServiceQuery{Tag: "v2"}))
	listed, err := c.Services.List(t.Context())
	require.NoError(t, err)
	require.Contains(t, listed, api.Service{Name: service, Instances: 1, Passing: 1})

	t.Log("one that fails is not found; who waits learns of it")
	known, err := c.Services.Get(t.Context(), service, client.ServiceQuery{})
	require.NoError(t, err)
	sick.Store(true)
	changed, err := c.Services.Get(t.Context(), service, client.ServiceQuery{Index: known.Index, Wait: time.Minute})
	require.NoError(t, err)
	require.Empty(t, changed.Instances)
	require.Equal(t, api.InstanceFailing, found(client.ServiceQuery{Any: true})[0].Health)
	require.Len(t, c.of("0"), 1, "its definition says that it goes on")
	sick.Store(false)
	require.Eventually(t, passing(1), patience, 50*time.Millisecond)

	t.Log("the same with the default: it begins again")
	c.define(t, name, api.JobService, health(""))
	c.waitBegins(t, "0", 2)
	require.Eventually(t, passing(1), patience, 50*time.Millisecond)
	sick.Store(true)
	c.waitBegins(t, "0", 3)
	sick.Store(false)
	require.Eventually(t, passing(1), patience, 50*time.Millisecond)

	t.Log("one whose agent is out of touch is not found")
	wire.cut()
	require.Eventually(t, passing(0), patience, 50*time.Millisecond)
}

// TestNomad6708GPUsAreSharedByMemory (#23703, #27402): two GPUs of 24 GiB take six tasks of 8 GiB at a time, also over a
// restart of the hub.
func TestNomad6708GPUsAreSharedByMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	agents := []string{plane.UniqueID("a"), plane.UniqueID("b")}
	for _, id := range agents {
		b.offering(t, id, gpu24)
	}
	for range 6 {
		b.waitBegins(t, b.submit(t, gpu("8Gi")), 1)
	}
	seventh := b.submit(t, gpu("8Gi"))
	const full = "too little is free of gpu memory 8Gi on 2 agents"
	b.blocked(t, seventh, full)
	before := map[string]map[string]api.Allocation{}
	for _, id := range agents {
		before[id] = b.held(t, id)
		require.Len(t, before[id], 3)
		for _, a := range before[id] {
			require.Equal(t, api.Allocation{Devices: []api.DeviceShare{{Kind: "gpu", Vendor: "nvidia",
				Memory: "8Gi"}}}, a)
		}
	}

	listen, hubID := strings.TrimPrefix(b.node.URL, "http://"), b.node.Hub.ID()
	b.node.Stop()
	b.node = plane.NewNode(t, plane.NodeOptions{HubID: hubID, Listen: listen})
	for _, id := range agents {
		require.Eventually(t, func() bool { return len(b.held(t, id)) == 3 }, patience, 50*time.Millisecond)
		require.Equal(t, before[id], b.held(t, id))
	}
	b.blocked(t, seventh, full)
	b.finish.Store(true)
	done := getTask(t, b.node.URL, seventh, "20s")
	require.Equal(t, api.TaskCompleted, done.Status)
	require.Len(t, done.Attempts, 1)
	require.Equal(t, 1, done.Attempts[0].Number, "it was never offered in vain")
}

// TestNomad24904PortsAreNotReusedWhileTheOldProcessDies: neither one of the agent's range nor a static one.
func TestNomad24904PortsAreNotReusedWhileTheOldProcessDies(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	static := freePorts(t, 5)
	c.offer = &api.Inventory{Ports: fmt.Sprintf("%d-%d", static+1, static+4)}
	c.agent(t, plane.UniqueID("a"))
	const ranged = ", place: {ports: {http: {}}}"
	fixed := fmt.Sprintf(", place: {ports: {http: {static: %d}}}", static)
	stop := func(kind, place string) (name string) {
		name = plane.UniqueID(kind)
		c.actors(t, name, api.JobService, "slow", place+", stop: {grace: 1m}", "")
		c.untouched(t, name, 1, 1)
		_, err := c.Jobs.Stop(t.Context(), name, "")
		require.NoError(t, err)
		return name
	}
	dying := map[string]string{"ranged": stop("ranged", ranged), "fixed": stop("fixed", fixed)}
	others, waits, late := plane.UniqueID("others"), plane.UniqueID("waits"), plane.UniqueID("late")
	c.actors(t, others, api.JobService, "well", ranged+", count: 3", "")
	c.actors(t, waits, api.JobService, "well", fixed, "")
	c.actors(t, late, api.JobService, "well", ranged, "")
	c.await(t, others, "0 running, 1 running, 2 running")
	c.why(t, waits, fmt.Sprintf("too little is free of port %d", static))
	c.why(t, late, "too little is free of a port of its range")
	c.untouched(t, others, 1, 3)
	for _, s := range c.acted(others, 1) {
		require.NoError(t, s.unbound)
		require.NotEqual(t, c.acted(dying["ranged"], 1)[0].port, s.port)
	}
	c.untouched(t, dying["ranged"], 1, 1)
	c.untouched(t, dying["fixed"], 1, 1)
	require.Empty(t, c.acted(waits, 1))

	t.Log("a static port is there again once its process has ended; one of the range rests")
	close(c.die)
	c.await(t, waits, "0 running")
	c.untouched(t, waits, 1, 1)
	require.Empty(t, c.acted(late, 1))
}

// TestNomad18509SlowEndsDoNotBlockDeployments has a system job with a static port, whose instance takes long to end, and
// a service that is deployed meanwhile.
func TestNomad18509SlowEndsDoNotBlockDeployments(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	c.offer = &api.Inventory{}
	c.agent(t, plane.UniqueID("a"))
	system, service := plane.UniqueID("s"), plane.UniqueID("j")
	place := fmt.Sprintf(", stop: {grace: 1m}, place: {ports: {http: {static: %d}}}", freePorts(t, 1))
	c.actors(t, system, api.JobSystem, "slow", place, "update: {"+quickly+"}")
	c.actors(t, service, api.JobService, "well", "", "update: {"+quickly+"}")
	c.deployed(t, system, 1, api.DeploymentSuccessful)
	c.deployed(t, service, 1, api.DeploymentSuccessful)
	c.actors(t, system, api.JobSystem, "well", place, "update: {"+quickly+"}")
	c.actors(t, service, api.JobService, "well", ", stop: {grace: 1m}, service: {name: "+service+"}",
		"update: {"+quickly+"}")
	c.deployed(t, service, 2, api.DeploymentSuccessful)
	c.deployed(t, system, 2, api.DeploymentRunning)
	c.untouched(t, system, 1, 1)
	require.Empty(t, c.acted(system, 2), "the port is not free yet")
	close(c.die)
	c.deployed(t, system, 2, api.DeploymentSuccessful)
	c.untouched(t, system, 2, 1)
}

// TestNomad2067CanariesWithAStaticPort: one of a system job has the port of the instance whose place it takes. One of a
// service is beside the others, so where no other host has the port it says why it waits, and gives up in time. With
// another order it is then deployed.
func TestNomad2067CanariesWithAStaticPort(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	c.offer = &api.Inventory{}
	c.agent(t, plane.UniqueID("a"))
	first := freePorts(t, 2)
	place := func(port int) string { return fmt.Sprintf(", place: {ports: {http: {static: %d}}}", port) }
	system, service := plane.UniqueID("s"), plane.UniqueID("j")
	c.actors(t, system, api.JobSystem, "well", place(first), "update: {"+quickly+"}")
	c.actors(t, service, api.JobService, "well", place(first+1), "update: {"+quickly+"}")
	c.deployed(t, system, 1, api.DeploymentSuccessful)
	c.deployed(t, service, 1, api.DeploymentSuccessful)

	c.actors(t, system, api.JobSystem, "well", place(first)+", stop: {grace: 6s}", "update: {canary: 1, "+quickly+"}")
	c.deployed(t, system, 2, api.DeploymentWaiting)
	_, err := c.Jobs.Promote(t.Context(), system, "")
	require.NoError(t, err)
	c.deployed(t, system, 2, api.DeploymentSuccessful)
	c.untouched(t, system, 2, 1)

	next := place(first+1) + ", stop: {grace: 6s}"
	c.actors(t, service, api.JobService, "well", next, "update: {canary: 1, healthy_after: 200ms, healthy_within: 4s}")
	c.why(t, service, fmt.Sprintf("too little is free of port %d", first+1))
	require.Contains(t, c.deployed(t, service, 2, api.DeploymentFailed).Reason, "it runs on no agent")
	c.untouched(t, service, 1, 1)
	c.actors(t, service, api.JobService, "well", next, "update: {order: stop_first, "+quickly+"}")
	c.deployed(t, service, 3, api.DeploymentSuccessful)
	c.untouched(t, service, 3, 1)
}

// TestNomad24824WhyNothingIsPlaced (#19446) is said in the list of a job's instances, where people look.
func TestNomad24824WhyNothingIsPlaced(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	c.offer = &gpu24
	for range 2 {
		c.agent(t, plane.UniqueID("a"))
	}
	wants := func(memory string) string { return ", place: {devices: [{kind: gpu, memory: " + memory + "}]}" }
	large, full, nowhere := plane.UniqueID("large"), plane.UniqueID("full"), plane.UniqueID("nowhere")
	c.actors(t, large, api.JobService, "well", wants("64Gi"), "")
	c.why(t, large, "it lacks gpu memory 64Gi on 2 agents")
	c.actors(t, full, api.JobService, "well", wants("20Gi")+", count: 3", "")
	c.why(t, full, "too little is free of gpu memory 20Gi on 2 agents")
	c.untouched(t, full, 1, 2)
	c.actors(t, nowhere, api.JobService, "well", ", place: {capabilities: [none-has]}", "")
	c.why(t, nowhere, "none-has")

	t.Log("none of that counts, and it is over once an agent has room")
	c.offer = &api.Inventory{Devices: []api.Device{{Kind: "gpu", Memory: "96Gi"}}} // full takes 20
	c.agent(t, plane.UniqueID("b"))
	placed := c.await(t, large, "0 running")
	c.untouched(t, large, 1, 1)
	require.Empty(t, placed[0].Why)
}

// Nomad #16515, #15144 and #14925: work that must not be rescheduled is, when its agent is out of touch.
func TestNomad16515ADisconnectPolicyHeedsDoNotReschedule(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		grace, more  string
		moves, waits bool
	}{
		"back within the grace": {grace: "10m"},
		"away for longer":       {grace: "1s", moves: true},
		"away for longer, and not to be rescheduled": {grace: "1s", waits: true,
			more: ", reschedule: {attempts: 0}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrew(t)
			first, second := plane.UniqueID("a"), plane.UniqueID("b")
			_, wire := c.agent(t, first)
			name := plane.UniqueID("j")
			definition := fmt.Sprintf(`{job: %s, type: service, cluster: %s, recovery: {mode: cluster_recover%s}, instances: {
				task: {type: serve}, disconnect: {grace: %s}, place: {affinity: %s}}}`, name, c.cluster, test.more, test.grace, first)
			_, err := c.Jobs.Apply(t.Context(), name, []byte(definition), "")
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Jobs.Delete(context.WithoutCancel(t.Context()), name) })
			c.waitBegins(t, "0", 1)
			require.Eventually(t, func() bool { return c.await(t, name, "0 running")[0].Agent == first }, patience,
				20*time.Millisecond, "its hub has told who has it")
			c.agent(t, second)
			connection := func() api.Connection {
				var a api.Agent
				call(t, http.MethodGet, c.node.URL+"/api/v1/agents/"+first, nil, &a)
				return a.Connection
			}

			wire.cut()
			begins := []string{first}
			now := begins
			switch {
			case test.moves:
				begins, now = []string{first, second}, []string{second}
				require.Equal(t, begins, c.waitBegins(t, "0", 2))
			case test.waits:
				now = nil
				c.await(t, name, "0 blocked") // a person decides
			default:
				seen := map[api.Connection]bool{}
				require.Eventually(t, func() bool {
					is := connection()
					seen[is] = true
					return is == api.Disconnected
				}, patience, 20*time.Millisecond)
				delete(seen, "") // no answer
				require.Subset(t, []api.Connection{api.Connected, api.Reconnecting, api.Disconnected},
					slices.Collect(maps.Keys(seen)))
				require.Equal(t, now, c.servers("0"), "its process goes on")
			}
			wire.heal()
			require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, api.Connected, connection()) }, patience,
				20*time.Millisecond)
			require.Eventually(t, func() bool { return slices.Equal(now, c.servers("0")) }, patience, 20*time.Millisecond,
				"what no longer counts is stopped")
			if !test.waits {
				require.Equal(t, now[0], c.await(t, name, "0 running")[0].Agent)
			}
			require.Equal(t, begins, c.of("0"))
		})
	}
}
