package agent

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
)

func reduceLoadCommand(a *app.App) *cobra.Command {
	var request api.ReduceLoadRequest
	command := app.Show(a, &cobra.Command{
		Use:   "reduce-load ID",
		Short: "Let an agent run fewer tasks at a time",
		Long: `Let an agent run fewer tasks at a time than it has slots: half of them, unless --slots or --factor says how many. What it
runs goes on. It gets its slots back by itself, step by step, when the time is over; it stays so when anything restarts.`,
		Example: `  mainstay agent reduce-load agent-1 --reason "the disk is slow"
  mainstay agent reduce-load agent-1 --slots 2 --for 1h
  mainstay agent reduce-load agent-1 --factor 0.25 --until-healthy`,
		Args: app.Exactly("an agent's id"),
	}, func(ctx context.Context, s *client.Client, args []string) (*api.Agent, error) {
		return s.Agents.ReduceLoad(ctx, args[0], request)
	}, printLoad)
	flags := command.Flags()
	app.CheckFirst(command, func() error {
		switch slots, factor := flags.Changed("slots"), flags.Changed("factor"); {
		case slots && factor:
			return app.UsageError("give --slots or --factor, not both")
		case slots && request.Slots < 1:
			return app.UsageError("--slots must be 1 or more; to give the agent nothing new, drain it")
		case factor && (request.Factor <= 0 || request.Factor >= 1):
			return app.UsageError("--factor must lie between 0 and 1, such as 0.5")
		}
		return nil
	})
	flags.IntVar(&request.Slots, "slots", 0, "how many tasks it may run at a time")
	flags.Float64Var(&request.Factor, "factor", 0, "this share of its slots, between 0 and 1 (default: 0.5)")
	flags.StringVar(&request.For, "for", "", "after how long it gets its slots back, for example 1h (default: 10m)")
	flags.BoolVar(&request.UntilHealthy, "until-healthy", false,
		"give them back earlier, once its health is good again")
	flags.StringVar(&request.Reason, "reason", "", "why; shown with the agent")
	return command
}

func restoreLoadCommand(a *app.App) *cobra.Command {
	return app.Show(a, &cobra.Command{
		Use:     "restore-load ID",
		Short:   "Give an agent all its slots back, at once",
		Example: "  mainstay agent restore-load agent-1",
		Args:    app.Exactly("an agent's id"),
	}, func(ctx context.Context, s *client.Client, args []string) (*api.Agent, error) {
		return s.Agents.RestoreLoad(ctx, args[0])
	}, printLoad)
}

func printLoad(a *app.App, g *api.Agent) error {
	text := reductionText(a, g)
	if text == "" {
		text = fmt.Sprintf("may use all its %d slots", g.MaxTasks)
	}
	return a.Sayf("Agent %s %s.\n", g.ID, text)
}

// reductionText tells how an agent's load is reduced; empty: it is not.
func reductionText(a *app.App, g *api.Agent) string {
	r := g.LoadReduction
	if r == nil {
		return ""
	}
	text := fmt.Sprintf("may use %d of its %d slots until %s", g.EffectiveSlots, g.MaxTasks,
		r.Until.Local().Format("15:04:05"))
	if r.UntilHealthy {
		text += ", or until its health is good again"
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}
