package command

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/config"
	"mainstay.dev/mainstay/testsuite/bench"
)

type queueReport struct {
	Machine bench.Machine `json:"machine"`
	*bench.Queue
}

func queueCommand(a *app.App) *cobra.Command {
	plan := bench.DefaultQueuePlan()
	plan.Pollers = config.Default().Hub.LanePollers
	command := &cobra.Command{
		Use:   "queue",
		Short: "Measure the durable queue: order, fairness, latency, how quickly a fleet obeys, and depth",
		Long: `Measure the durable queue with real processes.

order     tasks of mixed priority queue up while nobody serves them, then a few slots come: in which order they begin
lanes     likewise with an agent that serves two lanes, which Temporal orders each by itself
fairness  likewise with two tenants, one with nine times as many tasks, at equal weights and at 3 : 1
latency   from a task's acknowledgement to its first instruction, at half load, beside bare Temporal
control   from a cancel to the end of the running command, and from an offline agent's return to its waiting task
depth     a deep queue is filled through /tasks/batch and drained, beside bare Temporal: rates, and the memory it takes`,
		Example: "  mainstay bench queue\n  mainstay bench queue --only depth --depth 50000\n  mainstay bench queue --only order,fairness,control",
		Args:    app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkQueuePlan(&plan); err != nil {
				return err
			}
			return runBench(a, func(b *run) error { return b.queue(c.Context(), &plan) })
		},
	}
	flags := command.Flags()
	flags.IntVar(&plan.Tasks, "tasks", plan.Tasks, "tasks of order, of lanes and of fairness")
	flags.IntVar(&plan.Slots, "slots", plan.Slots, "slots that come to them")
	flags.IntVar(&plan.Depth, "depth", plan.Depth, "tasks of the deep queue")
	flags.IntVar(&plan.DepthSlots, "depth-slots", plan.DepthSlots, "slots that drain it, and slots of latency")
	flags.IntVar(&plan.Rounds, "rounds", plan.Rounds, "rounds of latency, of each side")
	flags.IntVar(&plan.LatencyTasks, "latency-tasks", plan.LatencyTasks, "tasks in a round of latency")
	flags.Float64Var(&plan.Rate, "rate", 0,
		"tasks a second in a round of latency (default: half of what the slower side can do)")
	flags.IntVar(&plan.Cancels, "cancels", plan.Cancels, "running commands to cancel")
	flags.IntVar(&plan.Returns, "returns", plan.Returns, "returns of an offline agent")
	flags.StringSliceVar(&plan.Only, "only", nil, "parts to measure (default: all)")
	a.OutputFlag(command)
	return command
}

func checkQueuePlan(p *bench.QueuePlan) error {
	for _, n := range []struct {
		flag               string
		value, least, most int
	}{
		{"--tasks", p.Tasks, 20, 100_000}, {"--slots", p.Slots, 1, 1000}, {"--depth", p.Depth, 10, 1_000_000},
		{"--depth-slots", p.DepthSlots, 1, 1000},
		{"--rounds", p.Rounds, 1, 1000}, {"--latency-tasks", p.LatencyTasks, 1, 100_000},
		{"--cancels", p.Cancels, 1, 1000}, {"--returns", p.Returns, 1, 1000},
	} {
		if n.value < n.least || n.value > n.most {
			return app.UsageError("%s must be %d to %d", n.flag, n.least, n.most)
		}
	}
	if p.Rate < 0 || p.Rate > 10_000 {
		return app.UsageError("--rate must be 0 to 10000")
	}
	for _, name := range p.Only {
		if !slices.Contains(bench.QueueParts(), name) {
			return app.UsageError("--only must name some of %s", strings.Join(bench.QueueParts(), ", "))
		}
	}
	return nil
}

func (b *run) queue(ctx context.Context, p *bench.QueuePlan) error {
	queue, err := bench.MeasureQueue(ctx, p, b.installer(bench.Setting{}),
		b.installer(bench.Setting{TemporalOnly: true}), b.story)
	report := queueReport{Machine: b.machine, Queue: queue}
	return errors.Join(b.Print(report, func() error {
		queue.Write(b.Stdout)
		return nil
	}), err)
}
