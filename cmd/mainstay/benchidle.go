package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/testsuite/bench"
)

type benchIdleReport struct {
	Machine bench.Machine `json:"machine"`
	Seconds float64       `json:"seconds"`
	*bench.Idle
}

func (a *app) benchIdleCommand() *cobra.Command {
	var agents int
	var d time.Duration
	command := &cobra.Command{
		Use:   "idle",
		Short: "Measure what a fleet without work costs",
		Long: `Measure what a fleet without work costs: processor time of the hub and of the rest of the control plane, polls a second,
and events written to workflow histories, of which there must be none.`,
		Example: "  mainstay bench idle --agents 500 --for 2m",
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if agents < 1 || agents > 1000 {
				return usageError("--agents must be 1 to 1000")
			}
			if d < time.Second {
				return usageError("--for must be at least 1s")
			}
			return a.benchIdle(c.Context(), agents, d)
		},
	}
	flags := command.Flags()
	flags.IntVar(&agents, "agents", 100, "agents that have nothing to do")
	flags.DurationVar(&d, "for", time.Minute, "how long to measure")
	a.outputFlag(command)
	return command
}

func (a *app) benchIdle(ctx context.Context, agents int, d time.Duration) (err error) {
	report := benchIdleReport{Machine: bench.ThisMachine(version, a.now())}
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
	if report.Idle, err = bench.MeasureIdle(ctx, installation, agents, d, story); err != nil {
		return err
	}
	report.Seconds = report.For.Seconds()
	return a.print(report, func() error {
		fmt.Fprintln(a.stdout)
		t := newTable(a.stdout, fmt.Sprintf("| %d idle agents for %s", agents, roughly(report.For)), "|   |")
		t.row("|---", "|---|")
		t.row("| hub process", fmt.Sprintf("| %.1f %% of a core |", report.HubCPU))
		t.row("| Temporal, gateway and worker", fmt.Sprintf("| %.1f %% of a core |", report.PlaneCPU))
		t.row("| polls", fmt.Sprintf("| %.1f /s |", report.Polls))
		t.row("| open workflows", fmt.Sprintf("| %d |", report.Workflows))
		t.row("| history events written", fmt.Sprintf("| %d |", report.Events))
		return t.flush()
	})
}
