package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/testsuite/bench"
)

type healingReport struct {
	Machine     bench.Machine `json:"machine"`
	Seconds     float64       `json:"seconds"`
	CycleMillis float64       `json:"cycle_ms"`
	*bench.HealingCost
}

func healingCommand(a *app.App) *cobra.Command {
	var clusters, agents int
	var d time.Duration
	command := &cobra.Command{
		Use:   "healing",
		Short: "Measure what the healing cycle costs while nothing is wrong",
		Long: `Measure what the healing cycle costs while nothing is wrong: workflow tasks, events and queries of its cycles, and what the
database writes with the schedule paused and with it. It takes twice --for and three minutes more.`,
		Example: "  mainstay bench healing --clusters 100 --agents 10 --for 3m",
		Args:    app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if clusters < 1 || agents < 1 || clusters*agents > 2000 {
				return app.UsageError("--clusters and --agents must be 1 or more, and 2000 agents together at most")
			}
			if d < 90*time.Second {
				return app.UsageError("--for must be at least 90s: a cycle begins each minute")
			}
			return runBench(a, func(b *run) error { return b.healing(c.Context(), clusters, agents, d) })
		},
	}
	flags := command.Flags()
	flags.IntVar(&clusters, "clusters", 100, "clusters")
	flags.IntVar(&agents, "agents", 10, "agents in each, that have nothing to do")
	flags.DurationVar(&d, "for", 3*time.Minute, "how long to measure, once with the schedule paused and once with it")
	a.OutputFlag(command)
	return command
}

func (b *run) healing(ctx context.Context, clusters, agents int, d time.Duration) error {
	installation, err := b.install(ctx, bench.Setting{})
	if err != nil {
		return err
	}
	defer installation.Stop()
	cost, err := bench.MeasureHealing(ctx, installation, clusters, agents, d, b.story)
	if err != nil {
		return err
	}
	report := healingReport{Machine: b.machine, Seconds: cost.For.Seconds(), CycleMillis: milliseconds(cost.CycleTime),
		HealingCost: cost}
	return b.Print(report, func() error {
		minute := func(n int64) string { return fmt.Sprintf("%.1f", cost.PerMinute(n)) }
		return b.table(fmt.Sprintf("%d clusters of %d agents, a minute", clusters, agents), [][2]string{
			{"cycles", minute(int64(cost.Cycles))},
			{"their workflow tasks", minute(cost.WorkflowTasks)},
			{"their history events", minute(cost.Events)},
			{"queries of clusters, which write nothing", minute(cost.Queries)},
			{"a cycle takes", fmt.Sprintf("%.0f ms", report.CycleMillis)},
			{"database transactions, healing paused", minute(cost.Paused.Transactions)},
			{"database transactions, with healing", minute(cost.Active.Transactions)},
			{"database pages, healing paused", minute(cost.Paused.Pages)},
			{"database pages, with healing", minute(cost.Active.Pages)},
			{"control plane's cpu, healing paused", ofACore(cost.Paused.CPU)},
			{"control plane's cpu, with healing", ofACore(cost.Active.CPU)},
		})
	})
}
