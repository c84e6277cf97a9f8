package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/protocol"
)

// idle is what a fleet without work costs.
type idle struct {
	Seconds float64 `json:"seconds"`
	// HubCPU and PlaneCPU are shares of one core: of the hub's process, and of the process with Temporal, gateway and
	// worker.
	HubCPU   float64 `json:"hub_cpu_percent"`
	PlaneCPU float64 `json:"temporal_gateway_worker_cpu_percent"`
	Polls    float64 `json:"polls_per_second"`
	// Workflows is how many are open, and Events how much their histories have grown in all.
	Workflows int   `json:"workflows"`
	Events    int64 `json:"history_events_written"`
}

func idleBenchmark() benchmark {
	var agents int
	var d time.Duration
	return benchmark{
		Command: &cobra.Command{
			Use:   "idle",
			Short: "Measure what a fleet without work costs",
			Long: `Measure what a fleet without work costs: processor time of the hub and of the rest of the control plane,
polls a second, and events written to workflow histories, of which there must be none.`,
			Example: "  mainstay-bench idle --agents 500 --for 2m",
		},
		flags: func(flags *pflag.FlagSet) {
			flags.IntVar(&agents, "agents", 100, "agents that have nothing to do")
			flags.DurationVar(&d, "for", time.Minute, "how long to measure")
		},
		measure: func(ctx context.Context, r *run) error { return r.idle(ctx, agents, d) },
	}
}

// idle runs agents without work, all in this process, on a hub in a process of its own.
func (r *run) idle(ctx context.Context, agents int, d time.Duration) error {
	i, err := r.install(ctx, Setting{roles: "hub"})
	if err != nil {
		return err
	}
	defer i.Stop()
	if err := i.joinIdle(ctx, agents); err != nil {
		return err
	}
	fmt.Fprintf(r.story, "%d agents are online; measuring for %s after they have settled\n", agents, d)
	if err := pause(ctx, settle); err != nil {
		return err
	}
	result := struct {
		report
		Agents int `json:"agents"`
		idle
	}{report: r.report, Agents: agents}
	if result.idle, err = measureIdle(ctx, i, d); err != nil {
		return err
	}
	took := time.Duration(result.Seconds * float64(time.Second))
	return r.print(result, func(w io.Writer) {
		t := newTable(w, fmt.Sprintf("%d idle agents for %s", agents, app.Roughly(took)), "")
		t.row("hub process", ofACore(result.HubCPU))
		t.row("Temporal, gateway and worker", ofACore(result.PlaneCPU))
		t.row("polls", fmt.Sprintf("%.1f /s", result.Polls))
		t.row("open workflows", result.Workflows)
		t.row("history events written", result.Events)
		t.flush()
	})
}

// settle lets joins, first heartbeats and visibility come to rest.
const settle = 10 * time.Second

// measureIdle measures what the control plane does for a while.
func measureIdle(ctx context.Context, i *Installation, d time.Duration) (idle, error) {
	before, err := takeIdle(ctx, i)
	if err != nil {
		return idle{}, err
	}
	if err := pause(ctx, d); err != nil {
		return idle{}, err
	}
	after, err := takeIdle(ctx, i)
	if err != nil {
		return idle{}, err
	}
	took := after.at.Sub(before.at)
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / took.Seconds() }
	return idle{Seconds: took.Seconds(), HubCPU: share(after.hub - before.hub),
		PlaneCPU: share(after.plane - before.plane), Polls: (after.polls - before.polls) / took.Seconds(),
		Workflows: len(after.events), Events: grown(before.events, after.events)}, nil
}

// idleReading is one look at everything.
type idleReading struct {
	at         time.Time
	hub, plane time.Duration
	polls      float64
	events     map[string]int64 // by workflow and run
}

func takeIdle(ctx context.Context, i *Installation) (*idleReading, error) {
	events, err := histories(ctx, i)
	if err != nil {
		return nil, err
	}
	polls, err := metric(ctx, i.agentsURL(), "mainstay_http_request_duration_seconds_count",
		`route="`+protocol.PollPath+`"`)
	return &idleReading{time.Now(), cpuTimes(i.hubPID()), cpuTimes(i.plane.PID()), polls, events}, err
}

// histories are the lengths of the histories of all open workflows.
func histories(ctx context.Context, i *Installation) (map[string]int64, error) {
	events := map[string]int64{}
	for w, err := range (store.Store{Client: i.sdk}).Workflows(ctx, "ExecutionStatus = 'Running'") {
		if err != nil {
			return nil, fmt.Errorf("list workflows: %w", err)
		}
		id, run := w.GetExecution().GetWorkflowId(), w.GetExecution().GetRunId()
		d, err := i.sdk.DescribeWorkflowExecution(ctx, id, run)
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", id, err)
		}
		events[id+" "+run] = d.GetWorkflowExecutionInfo().GetHistoryLength()
	}
	return events, nil
}

// grown adds up by how much histories grew. A workflow that is new counts whole.
func grown(before, after map[string]int64) int64 {
	var sum int64
	for workflow, n := range after {
		sum += n - before[workflow]
	}
	return sum
}
