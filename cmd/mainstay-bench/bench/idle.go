package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	sdkclient "go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// idle is what a fleet without work costs.
type idle struct {
	report
	Seconds float64 `json:"seconds"`
	Agents  int     `json:"agents"`
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
			Long: `Measure what a fleet without work costs: processor time of the hub and of the rest of the control
plane, polls a second, and events written to workflow histories, of which there must be none.`,
			Example: "  mainstay-bench idle --agents 500 --for 2m",
		},
		numbers: []number{{"agents", &agents, 100, 1, 1000, "agents that have nothing to do"}},
		lengths: []length{{"for", &d, time.Minute, time.Second, "how long to measure"}},
		measure: func(ctx context.Context, r *run) error { return r.idle(ctx, agents, d) },
	}
}

// idle runs agents without work, all in one process, on a hub in a process of its own.
func (r *run) idle(ctx context.Context, agents int, d time.Duration) error {
	i, err := r.install(ctx, Setting{})
	if err != nil {
		return err
	}
	defer i.Stop()
	if err := i.startServe(ctx, "hub"); err != nil {
		return err
	}
	if err := i.startIdle(ctx, agents, "--count", strconv.Itoa(agents)); err != nil {
		return err
	}
	fmt.Fprintf(r.story, "%d agents are online; measuring for %s after they have settled\n", agents, d)
	if err := pause(ctx, settle); err != nil {
		return err
	}
	c, err := i.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	result, err := measureIdle(ctx, i, c, d)
	if err != nil {
		return err
	}
	result.report, result.Agents = r.report, agents
	took := time.Duration(result.Seconds * float64(time.Second))
	return r.facts(result, fmt.Sprintf("%d idle agents for %s", agents, app.Roughly(took)), [][2]string{
		{"hub process", ofACore(result.HubCPU)},
		{"Temporal, gateway and worker", ofACore(result.PlaneCPU)},
		{"polls", fmt.Sprintf("%.1f /s", result.Polls)},
		{"open workflows", fmt.Sprint(result.Workflows)},
		{"history events written", fmt.Sprint(result.Events)},
	})
}

// measureIdle measures what the control plane does for a while.
func measureIdle(ctx context.Context, i *Installation, c sdkclient.Client, d time.Duration) (*idle, error) {
	before, err := takeIdle(ctx, i, c)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, d); err != nil {
		return nil, err
	}
	after, err := takeIdle(ctx, i, c)
	if err != nil {
		return nil, err
	}
	took := after.at.Sub(before.at)
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / took.Seconds() }
	return &idle{Seconds: took.Seconds(), HubCPU: share(after.hub - before.hub),
		PlaneCPU: share(after.plane - before.plane), Polls: (after.polls - before.polls) / took.Seconds(),
		Workflows: len(after.events), Events: grown(before.events, after.events)}, nil
}

// startIdle starts a process with so many agents that have nothing to do, and returns when the hub has their sessions.
func (i *Installation) startIdle(ctx context.Context, agents int, args ...string) error {
	if _, err := i.Start("agents", append([]string{"agent", "--hub", i.agentsURL(), "--id", "idle"},
		args...)...); err != nil {
		return err
	}
	return eventually(ctx, fmt.Sprintf("%d agents", agents), startLimit, 100*time.Millisecond,
		func(ctx context.Context) (bool, error) {
			sessions, err := metric(ctx, i.agentsURL(), "mainstay_hub_sessions", "")
			return err == nil && int(sessions) == agents, nil
		})
}

// settle lets joins, first heartbeats and visibility come to rest.
const settle = 10 * time.Second

// idleReading is one look at everything.
type idleReading struct {
	at         time.Time
	hub, plane time.Duration
	polls      float64
	events     map[string]int64 // by workflow and run
}

func takeIdle(ctx context.Context, i *Installation, c sdkclient.Client) (*idleReading, error) {
	events, err := histories(ctx, c)
	if err != nil {
		return nil, err
	}
	polls, err := metric(ctx, i.agentsURL(), "mainstay_http_request_duration_seconds_count",
		`route="`+protocol.PollPath+`"`)
	if err != nil {
		return nil, err
	}
	hub, err := cpuTime(i.hubPID())
	if err != nil {
		return nil, err
	}
	plane, err := cpuTime(i.plane.PID())
	return &idleReading{time.Now(), hub, plane, polls, events}, err
}

// histories are the lengths of the histories of all open workflows.
func histories(ctx context.Context, c sdkclient.Client) (map[string]int64, error) {
	events := map[string]int64{}
	for w, err := range (store.Store{Client: c}).Workflows(ctx, "ExecutionStatus = 'Running'") {
		if err != nil {
			return nil, fmt.Errorf("list workflows: %w", err)
		}
		id, run := w.GetExecution().GetWorkflowId(), w.GetExecution().GetRunId()
		d, err := c.DescribeWorkflowExecution(ctx, id, run)
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
