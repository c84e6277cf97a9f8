package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

func rebalanceCommand(r *app.Resource[client.Clusters]) *cobra.Command {
	return app.Do(r, &cobra.Command{
		Use:   "rebalance NAME",
		Short: "Spread a cluster's shards and targets, and its tasks, evenly over its agents",
		Long: `Spread a cluster's shards and targets evenly over its agents, with as few moves as that needs, and tell what
moved. With --tasks, running tasks move from busy agents to idle ones too, and run again there from their last
checkpoint. What waits in a lane goes to the first agent that is free, work that is pinned to an agent to that one.`,
		Example: "  mainstay cluster rebalance default --dry-run\n  mainstay cluster rebalance default --tasks",
	}, func(c *cobra.Command, in *api.RebalanceRequest) {
		c.Flags().BoolVar(&in.Tasks, "tasks", false, "move running tasks too")
		c.Flags().BoolVar(&in.DryRun, "dry-run", false, "only show what would move")
		c.Flags().StringVar(&in.Reason, "reason", "", "why; kept in the cluster's history")
	}, client.Clusters.Rebalance, printRebalance)
}

func printRebalance(a *app.App, r *api.Rebalance) error {
	fmt.Fprintf(a.Stdout, "Cluster %s: %s.\n", r.Cluster, app.OneLine(r.Why))
	moves := []string{"MOVES", "FROM", "TO", "TARGETS"}
	err := app.PrintBelow(a, r.Moves, moves, func(m *api.RebalanceMove) []any {
		if m.Shard != nil {
			return []any{fmt.Sprintf("shard %d", *m.Shard), m.From, m.To, len(m.Targets)}
		}
		if m.Task != "" {
			return []any{"task " + m.Task, m.From, m.To, ""}
		}
		return []any{"target " + m.Target, m.From, m.To, ""}
	})
	if err != nil || r.Mode == api.ActivePassive {
		return err
	}
	return app.PrintBelow(a, r.Agents, []string{"AGENT", "SHARDS", "TARGETS", "TASKS"},
		func(g *api.AgentShare) []any {
			return []any{g.AgentID, change(g.ShardsBefore, g.Shards), change(g.TargetsBefore, g.Targets),
				change(g.TasksBefore, g.Tasks)}
		})
}

func change(before, after int) string {
	if before == after {
		return fmt.Sprint(after)
	}
	return fmt.Sprintf("%d → %d", before, after)
}

func targetsCommand(a *app.App) *cobra.Command {
	var request api.TargetsRequest
	command := a.Call(&cobra.Command{
		Use:     "targets NAME",
		Short:   "List a cluster's deployment targets and who looks after them; add and remove some",
		Example: "  mainstay cluster targets default\n  mainstay cluster targets default --add host-1,host-2 --remove host-9",
		Args:    app.Exactly("a cluster's name"),
	}, func(ctx context.Context, s *app.Client, args []string) error {
		if len(request.Add)+len(request.Remove) > 0 {
			if err := s.Clusters.ChangeTargets(ctx, args[0], request); err != nil {
				return err
			}
		}
		return app.PrintList(ctx, s, s.Clusters.Targets(args[0]), 0, printTargets)
	})
	command.Flags().StringSliceVar(&request.Add, "add", nil, "targets to add, separated by commas")
	command.Flags().StringSliceVar(&request.Remove, "remove", nil, "targets to remove")
	return command
}

func printTargets(a *app.App, targets []api.Target) error {
	const none = "The cluster has no targets. Add some with --add."
	return app.PrintTable(a, targets, none, []string{"TARGET", "AGENT", "SHARD"}, func(t *api.Target) []any {
		return []any{t.ID, t.Agent, t.Shard}
	})
}
