package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/testsuite/bench"
)

type benchHealingReport struct {
	Machine     bench.Machine `json:"machine"`
	Seconds     float64       `json:"seconds"`
	CycleMillis float64       `json:"cycle_ms"`
	*bench.HealingCost
}

func (a *app) benchHealingCommand() *cobra.Command {
	var clusters, agents int
	var d time.Duration
	command := &cobra.Command{
		Use:   "healing",
		Short: "Measure what the healing cycle costs while nothing is wrong",
		Long: `Measure what the healing cycle costs while nothing is wrong: workflow tasks, events and queries of its cycles, and what the
database writes with the schedule paused and with it. It takes twice --for and three minutes more.`,
		Example: "  mainstay bench healing --clusters 100 --agents 10 --for 3m",
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if clusters < 1 || agents < 1 || clusters*agents > 2000 {
				return usageError("--clusters and --agents must be 1 or more, and 2000 agents together at most")
			}
			if d < 90*time.Second {
				return usageError("--for must be at least 90s: a cycle begins each minute")
			}
			return a.benchHealing(c.Context(), clusters, agents, d)
		},
	}
	flags := command.Flags()
	flags.IntVar(&clusters, "clusters", 100, "clusters")
	flags.IntVar(&agents, "agents", 10, "agents in each, that have nothing to do")
	flags.DurationVar(&d, "for", 3*time.Minute, "how long to measure, once with the schedule paused and once with it")
	a.outputFlag(command)
	return command
}

func (a *app) benchHealing(ctx context.Context, clusters, agents int, d time.Duration) (err error) {
	report := benchHealingReport{Machine: bench.ThisMachine(version, a.now())}
	story := a.storyteller()
	fmt.Fprintln(story, report.Machine)
	dir, done, err := benchFolder()
	if err != nil {
		return err
	}
	defer func() { err = done(err) }()
	installation, err := a.installer(dir, bench.Setting{})(ctx)
	if err != nil {
		return err
	}
	defer installation.Stop()
	if report.HealingCost, err = bench.MeasureHealing(ctx, installation, clusters, agents, d, story); err != nil {
		return err
	}
	report.Seconds, report.CycleMillis = report.For.Seconds(), milliseconds(report.CycleTime)
	return a.print(report, func() error {
		minute := func(n int64) string { return fmt.Sprintf("| %.1f |", report.PerMinute(n)) }
		fmt.Fprintln(a.stdout)
		t := newTable(a.stdout, fmt.Sprintf("| %d clusters of %d agents, a minute", clusters, agents), "|   |")
		t.row("|---", "|---|")
		t.row("| cycles", minute(int64(report.Cycles)))
		t.row("| their workflow tasks", minute(report.WorkflowTasks))
		t.row("| their history events", minute(report.Events))
		t.row("| queries of clusters, which write nothing", minute(report.Queries))
		t.row("| a cycle takes", fmt.Sprintf("| %.0f ms |", report.CycleMillis))
		t.row("| database transactions, healing paused", minute(report.Paused.Transactions))
		t.row("| database transactions, with healing", minute(report.Active.Transactions))
		t.row("| database pages, healing paused", minute(report.Paused.Pages))
		t.row("| database pages, with healing", minute(report.Active.Pages))
		t.row("| control plane's cpu, healing paused", fmt.Sprintf("| %.1f %% of a core |", report.Paused.CPU))
		t.row("| control plane's cpu, with healing", fmt.Sprintf("| %.1f %% of a core |", report.Active.CPU))
		return t.flush()
	})
}
