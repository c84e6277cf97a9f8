package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/testsuite/bench"
)

type idleReport struct {
	Machine bench.Machine `json:"machine"`
	Seconds float64       `json:"seconds"`
	*bench.Idle
}

func idleCommand(a *app.App) *cobra.Command {
	var agents int
	var d time.Duration
	command := &cobra.Command{
		Use:   "idle",
		Short: "Measure what a fleet without work costs",
		Long: `Measure what a fleet without work costs: processor time of the hub and of the rest of the control plane, polls a second,
and events written to workflow histories, of which there must be none.`,
		Example: "  mainstay bench idle --agents 500 --for 2m",
		Args:    app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if agents < 1 || agents > 1000 {
				return app.UsageError("--agents must be 1 to 1000")
			}
			if d < time.Second {
				return app.UsageError("--for must be at least 1s")
			}
			return runBench(a, func(b *run) error { return b.idle(c.Context(), agents, d) })
		},
	}
	flags := command.Flags()
	flags.IntVar(&agents, "agents", 100, "agents that have nothing to do")
	flags.DurationVar(&d, "for", time.Minute, "how long to measure")
	a.OutputFlag(command)
	return command
}

func (b *run) idle(ctx context.Context, agents int, d time.Duration) error {
	installation, err := b.install(ctx, bench.Setting{})
	if err != nil {
		return err
	}
	defer installation.Stop()
	idle, err := bench.MeasureIdle(ctx, installation, agents, d, b.story)
	if err != nil {
		return err
	}
	return b.Print(idleReport{Machine: b.machine, Seconds: idle.For.Seconds(), Idle: idle}, func() error {
		return b.table(fmt.Sprintf("%d idle agents for %s", agents, app.Roughly(idle.For)), [][2]string{
			{"hub process", ofACore(idle.HubCPU)},
			{"Temporal, gateway and worker", ofACore(idle.PlaneCPU)},
			{"polls", fmt.Sprintf("%.1f /s", idle.Polls)},
			{"open workflows", fmt.Sprint(idle.Workflows)},
			{"history events written", fmt.Sprint(idle.Events)},
		})
	})
}

func ofACore(percent float64) string { return fmt.Sprintf("%.1f %% of a core", percent) }
