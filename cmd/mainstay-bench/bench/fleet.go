package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

const (
	// fewAgents are online before the many come. Their cost is taken off.
	fewAgents = 100
	// fleetDispatches are the tasks whose dispatch is timed, one every fleetDispatchEvery.
	fleetDispatches, fleetDispatchEvery = 200, 100 * time.Millisecond
	// fleetLooks is how often each answer of the API is asked for.
	fleetLooks = 20
	// The clusters of the two fleets; that of the many is numbered.
	fewCluster, manyCluster = "few", "many"
)

// Fleet is what a large fleet costs.
type Fleet struct {
	Agents   int     `json:"agents"`
	Clusters int     `json:"clusters"`
	Joined   float64 `json:"joined_seconds"` // until all were online
	// JoinCPU is the processor time of the control plane with Temporal for each join. Memory and Heap are what each
	// agent adds to its resident memory and to its Go heap.
	JoinCPU  float64 `json:"join_cpu_ms"`
	Memory   int64   `json:"memory_bytes_per_agent"`
	Heap     int64   `json:"heap_bytes_per_agent"`
	Resident int64   `json:"resident_bytes"`
	IdleCPU  float64 `json:"idle_cpu_percent"` // of a core
	Polls    float64 `json:"idle_polls_per_second"`
	Events   int64   `json:"idle_history_events_written"`
	// Few and Many are the times from submission to begin, beside fewer agents and with all.
	Few  Times `json:"dispatch_few"`
	Many Times `json:"dispatch_many"`
	// Ready and Reattached count from SIGKILL of the control plane with Temporal: until it is up, and until it has all
	// sessions again. GivenUp are the agents that it counted as lost meanwhile.
	Ready      float64       `json:"ready_after_kill_seconds"`
	Reattached float64       `json:"reattached_after_kill_seconds"`
	GivenUp    int           `json:"given_up"`
	Answers    []FleetAnswer `json:"answers"`
}

// FleetAnswer is how long a request takes with all agents online.
type FleetAnswer struct {
	What string `json:"what"`
	Times
}

func fleetBenchmark() benchmark {
	var agents, members int
	var d time.Duration
	return benchmark{
		Command: &cobra.Command{
			Use:   "fleet",
			Short: "Measure what a large fleet costs",
			Long: `Measure what a large fleet costs: memory and processor time of each agent's join, processor time of
the idle fleet, the time until a task begins beside that with 100 agents, answers of the API, and how long it takes
until all agents are back after SIGKILL of the control plane with Temporal. The agents are fake, all in the process of
the benchmark.`,
			Example: "  mainstay-bench fleet --agents 1000 --for 20s",
		},
		flags: func(flags *pflag.FlagSet) {
			flags.IntVar(&agents, "agents", 10_000, "agents")
			flags.IntVar(&members, "members", 1000, "the most agents in one cluster")
			flags.DurationVar(&d, "for", time.Minute, "how long to measure the idle fleet")
		},
		measure: func(ctx context.Context, r *run) error { return r.fleet(ctx, agents, members, d) },
	}
}

// fleetRun is a benchmark of a fleet under way.
type fleetRun struct {
	*run
	*Installation
	Fleet
}

func (r *run) fleet(ctx context.Context, agents, members int, d time.Duration) error {
	i, err := r.install(ctx, Setting{})
	if err != nil {
		return err
	}
	defer i.Stop()
	clusters := (agents + members - 1) / members
	f := &fleetRun{run: r, Installation: i, Fleet: Fleet{Agents: agents / clusters * clusters, Clusters: clusters}}
	for _, measure := range []func(context.Context) error{f.few, f.join,
		func(ctx context.Context) error { return f.idle(ctx, d) },
		func(ctx context.Context) (err error) { f.Many, err = f.dispatch(ctx, manyCluster+"-1"); return err },
		f.ask, f.kill} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return r.print(struct {
		report
		Fleet
	}{r.report, f.Fleet}, f.write)
}

// few starts the fleet that the other is measured beside.
func (f *fleetRun) few(ctx context.Context) (err error) {
	if _, err := f.Installation.Clusters.Create(ctx, client.Settings{"name": fewCluster}); err != nil {
		return err
	}
	f.joinFake(ctx, []string{fewCluster}, fewAgents)
	if err := f.awaitSessions(ctx, fewAgents); err != nil {
		return err
	}
	f.Few, err = f.dispatch(ctx, fewCluster)
	return err
}

// join starts the many agents.
func (f *fleetRun) join(ctx context.Context) error {
	clusters := make([]string, f.Fleet.Clusters)
	for n := range clusters {
		clusters[n] = fmt.Sprintf("%s-%d", manyCluster, n+1)
		settings := client.Settings{"name": clusters[n], "max_agents": api.MaxMembers}
		if _, err := f.Installation.Clusters.Create(ctx, settings); err != nil {
			return err
		}
	}
	before, beforeHeap, err := processMemory(ctx, f.url, f.plane.PID())
	if err != nil {
		return err
	}
	cpu, began := cpuTimes(f.plane.PID()), time.Now()
	f.joinFake(ctx, clusters, f.Fleet.Agents/f.Fleet.Clusters)
	if err := f.awaitSessions(ctx, fewAgents+f.Fleet.Agents); err != nil {
		return err
	}
	f.Joined = time.Since(began).Seconds()
	f.JoinCPU = milliseconds(cpuTimes(f.plane.PID())-cpu) / float64(f.Fleet.Agents)
	fmt.Fprintf(f.run.story, "%d agents are online after %.1f s\n", f.Fleet.Agents, f.Joined)
	if err := pause(ctx, settle); err != nil {
		return err
	}
	after, afterHeap, err := processMemory(ctx, f.url, f.plane.PID())
	f.Resident = after
	f.Memory, f.Heap = (after-before)/int64(f.Fleet.Agents), (afterHeap-beforeHeap)/int64(f.Fleet.Agents)
	return err
}

func (f *fleetRun) idle(ctx context.Context, d time.Duration) error {
	idle, err := measureIdle(ctx, f.Installation, d)
	f.IdleCPU, f.Polls, f.Events = idle.PlaneCPU, idle.Polls, idle.Events
	return err
}

// dispatch times tasks of one cluster from submission to begin.
func (f *fleetRun) dispatch(ctx context.Context, cluster string) (Times, error) {
	tasks, err := dispatch(ctx, mainstay{f.Installation, cluster, taskType}, fleetDispatches, fleetDispatchEvery)
	return timesOf(tasks.waits()), err
}

// ask times what people and tools ask for.
func (f *fleetRun) ask(ctx context.Context) error {
	const api = "/api/v1/agents"
	for _, a := range []struct{ what, path string }{
		{"the fleet page's document", "/"},
		{"overview", api + "/overview"},
		{"the first 100 agents", api + "?page_size=100"},
		{"the first 100 agents of a cluster", api + "?page_size=100&cluster=" + manyCluster + "-1"},
		{"one agent", api + "/" + manyCluster + "-1-1"},
		{"all clusters", api + "/clusters"},
	} {
		times := make([]time.Duration, fleetLooks)
		for n := range times {
			began := time.Now()
			body, err := ask(ctx, f.url+a.path)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, body)
			_ = body.Close()
			if err != nil {
				return err
			}
			times[n] = time.Since(began)
		}
		f.Answers = append(f.Answers, FleetAnswer{a.what, timesOf(times)})
	}
	return nil
}

// kill ends the control plane with its Temporal, and starts it again.
func (f *fleetRun) kill(ctx context.Context) error {
	began := time.Now()
	if err := f.comeBack(ctx, 0); err != nil {
		return err
	}
	f.Ready = time.Since(began).Seconds()
	if err := f.awaitSessions(ctx, fewAgents+f.Fleet.Agents); err != nil {
		return err
	}
	f.Reattached = time.Since(began).Seconds()
	if err := pause(ctx, settle); err != nil { // until those that did not come back were given up
		return err
	}
	for _, err := range f.Failovers.List(client.FailoverQuery{}).All(ctx) {
		if err != nil {
			return err
		}
		f.GivenUp++
	}
	return nil
}

func (f *fleetRun) write(w io.Writer) {
	t := newTable(w, fmt.Sprintf("%d agents in %d clusters", f.Fleet.Agents, f.Fleet.Clusters), "")
	t.row("all online after", fmt.Sprintf("%.1f s", f.Joined))
	t.row("processor time of a join", fmt.Sprintf("%.2f ms", f.JoinCPU))
	t.row("memory of an agent: resident, Go heap", fmt.Sprintf("%d KiB, %d KiB", f.Memory>>10, f.Heap>>10))
	t.row("resident memory in all", fmt.Sprintf("%d MiB", f.Resident>>20))
	t.row("idle", ofACore(f.IdleCPU))
	t.row("idle polls, history events written", fmt.Sprintf("%.1f /s, %d", f.Polls, f.Events))
	t.row(fmt.Sprintf("submit → begin with %d agents, p50, p99", fewAgents), inMs(f.Few))
	t.row("submit → begin with all agents, p50, p99", inMs(f.Many))
	for _, a := range f.Answers {
		t.row(a.What+", p50, p99", inMs(a.Times))
	}
	t.row("after SIGKILL of everything: ready, all re-attached", fmt.Sprintf("%.1f s, %.1f s", f.Ready, f.Reattached))
	t.row("agents that were given up then", f.GivenUp)
	t.flush()
}

func inMs(t Times) string { return fmt.Sprintf("%.1f ms, %.1f ms", t.P50, t.P99) }
