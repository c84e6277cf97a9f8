package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/testsuite/bench"
)

// fault is one row, for -o json. Times are in milliseconds.
type fault struct {
	Name   string  `json:"name"`
	Fault  string  `json:"fault"`
	Faults int     `json:"faults"`
	Moved  int     `json:"tasks_moved"`
	P50    float64 `json:"p50_ms,omitempty"`
	P99    float64 `json:"p99_ms,omitempty"`
	Max    float64 `json:"max_ms,omitempty"`
	Twice  int     `json:"overlapped"`
	Tasks  int     `json:"attempts_in_progress,omitempty"`
	Rerun  int     `json:"run_again"`
	Lost   int     `json:"lost"`
	Target string  `json:"target"`
	Met    bool    `json:"met"`
}

type failoverReport struct {
	Machine bench.Machine `json:"machine"`
	Faults  []fault       `json:"faults"`
}

func failoverCommand(a *app.App) *cobra.Command {
	plan := bench.DefaultFailoverPlan()
	command := &cobra.Command{
		Use:   "failover",
		Short: "Measure how long work stands still after faults",
		Long: `Measure the time from a fault to the first instruction of the moved attempt on another agent, with real processes that
are killed, stopped and frozen, and what becomes of running work when parts of the control plane die.

Faults: ` + strings.Join(bench.Faults(), ", ") + `.`,
		Example: "  mainstay bench failover\n  mainstay bench failover --only kill,leader --kills 100",
		Args:    app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkFailoverPlan(plan); err != nil {
				return err
			}
			return runBench(a, func(b *run) error { return b.failover(c.Context(), plan) })
		},
	}
	flags := command.Flags()
	flags.IntVar(&plan.Agents, "agents", plan.Agents, "agents with work, of which some are hit")
	flags.IntVar(&plan.Kills, "kills", plan.Kills, "agents killed (SIGKILL)")
	flags.IntVar(&plan.Freezes, "freezes", plan.Freezes, "agents frozen (SIGSTOP)")
	flags.IntVar(&plan.Stops, "stops", plan.Stops, "agents stopped (SIGTERM)")
	flags.IntVar(&plan.Leaders, "leaders", plan.Leaders, "leaders killed")
	flags.IntVar(&plan.OutageAgents, "outage-agents", plan.OutageAgents,
		"agents with work when parts of the control plane die")
	flags.DurationVar(&plan.Away, "away", plan.Away, "how long Temporal is away")
	flags.StringSliceVar(&plan.Only, "only", nil, "faults to measure (default: all)")
	a.OutputFlag(command)
	return command
}

func checkFailoverPlan(p bench.FailoverPlan) error {
	for _, n := range []struct {
		flag          string
		value, lowest int
	}{{"--agents", p.Agents, 5}, {"--kills", p.Kills, 1}, {"--freezes", p.Freezes, 1}, {"--stops", p.Stops,
		1}, {"--leaders", p.Leaders, 1}, {"--outage-agents", p.OutageAgents, 1}} {
		if n.value < n.lowest || n.value > 1000 {
			return app.UsageError("%s must be %d to 1000", n.flag, n.lowest)
		}
	}
	if p.Away < 0 {
		return app.UsageError("--away must not be negative")
	}
	for _, name := range p.Only {
		if !slices.Contains(bench.Faults(), name) {
			return app.UsageError("--only must name some of %s", strings.Join(bench.Faults(), ", "))
		}
	}
	return nil
}

func (b *run) failover(ctx context.Context, p bench.FailoverPlan) error {
	report := failoverReport{Machine: b.machine, Faults: []fault{}}
	rows, err := bench.Failover(ctx, p, b.installer(bench.Setting{}), b.story)
	for i := range rows {
		report.Faults = append(report.Faults, faultOf(&rows[i]))
	}
	return errors.Join(b.Print(report, func() error {
		fmt.Fprintln(b.Stdout)
		bench.WriteFailovers(b.Stdout, rows)
		return nil
	}), err)
}

func faultOf(r *bench.Row) fault {
	s := bench.Summarize(r.Times)
	return fault{
		Name:   r.Name,
		Fault:  r.Fault,
		Faults: r.Faults,
		Moved:  s.Count,
		P50:    milliseconds(s.P50),
		P99:    milliseconds(s.P99),
		Max:    milliseconds(s.Max),
		Twice:  r.Twice, Tasks: r.Tasks, Rerun: r.Rerun, Lost: r.Lost, Target: r.Target, Met: r.Met(),
	}
}
