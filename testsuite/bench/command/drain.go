package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/testsuite/bench"
)

// drainReport is for -o json. Times are in milliseconds.
type drainReport struct {
	Machine     bench.Machine `json:"machine"`
	Agents      int           `json:"agents"`
	MaxParallel int           `json:"max_parallel"`
	Tasks       int           `json:"tasks"`
	Total       float64       `json:"total_ms"`
	TailP50     float64       `json:"tail_p50_ms"`
	TailMax     float64       `json:"tail_max_ms"`
	Rerun       int           `json:"run_again"`
	Lost        int           `json:"lost"`
	Late        int           `json:"begun_too_late"`
	Moved       int           `json:"moved"`
	Undue       int           `json:"not_in_maintenance"`
	Met         bool          `json:"met"`
}

func drainCommand(a *app.App) *cobra.Command {
	plan := bench.DefaultDrainPlan()
	command := &cobra.Command{
		Use:   "drain",
		Short: "Measure a drain of many agents with running work",
		Long: `Measure a drain of many agents, each a process with running work, while more work comes: how long it takes, and by what the
handlers wrote down, whether anything was run again, lost, or begun on an agent after its drain said that nothing would be.`,
		Example: "  mainstay bench drain --agents 50 --max-parallel 10",
		Args:    app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case plan.Agents < 1 || plan.Agents > 500:
				return app.UsageError("--agents must be 1 to 500")
			case plan.Rest < 1 || plan.Rest > 500:
				return app.UsageError("--rest must be 1 to 500")
			case plan.MaxParallel < 1 || plan.MaxParallel > 500:
				return app.UsageError("--max-parallel must be 1 to 500")
			case plan.Work < time.Second:
				return app.UsageError("--work must be at least %s", time.Second)
			}
			return runBench(a, func(b *run) error { return b.drain(c.Context(), plan) })
		},
	}
	flags := command.Flags()
	flags.IntVar(&plan.Agents, "agents", plan.Agents, "agents to drain")
	flags.IntVar(&plan.Rest, "rest", plan.Rest, "agents that stay")
	flags.IntVar(&plan.MaxParallel, "max-parallel", plan.MaxParallel, "how many are drained at the same time")
	flags.DurationVar(&plan.Work, "work", plan.Work, "how long each task goes on")
	a.OutputFlag(command)
	return command
}

func (b *run) drain(ctx context.Context, p bench.DrainPlan) error {
	installation, err := b.install(ctx, bench.Setting{})
	if err != nil {
		return err
	}
	defer installation.Stop()
	d, err := bench.MeasureDrain(ctx, p, installation, b.story)
	if err != nil {
		return err
	}
	tails := bench.Summarize(d.Tails)
	report := drainReport{Machine: b.machine, Agents: d.Agents, MaxParallel: d.MaxParallel, Tasks: d.Tasks,
		Total:   milliseconds(d.Total),
		TailP50: milliseconds(tails.P50), TailMax: milliseconds(
			tails.Max), Rerun: d.Rerun, Lost: d.Lost, Late: d.Late, Moved: d.Moved, Undue: d.Undue, Met: d.Met()}
	return b.Print(report, func() error {
		return b.table(fmt.Sprintf("drain of %d agents, %d at a time", d.Agents, d.MaxParallel), [][2]string{
			{"in all", fmt.Sprintf("%.1f s", d.Total.Seconds())},
			{"from an agent's last work to maintenance, p50 / max",
				fmt.Sprintf("%.0f ms / %.0f ms", report.TailP50, report.TailMax)},
			{"tasks at work or submitted meanwhile", fmt.Sprint(d.Tasks)},
			{"run again / lost / moved", fmt.Sprintf("%d / %d / %d", d.Rerun, d.Lost, d.Moved)},
			{"begun on an agent after new work was stopped", fmt.Sprint(d.Late)},
		})
	})
}
