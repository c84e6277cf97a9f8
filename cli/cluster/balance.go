package cluster

import (
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

func rebalanceCommand(a *app.App) *cobra.Command {
	var request api.RebalanceRequest
	command := &cobra.Command{
		Use:   "rebalance NAME",
		Short: "Spread a cluster's shards and targets evenly over its agents",
		Long: `Spread a cluster's shards and targets evenly over its agents, with as few moves as that needs, and tell what moved. What
waits in a lane stays where it is, work that is pinned to an agent too.`,
		Example: "  mainstay cluster rebalance default --dry-run\n  mainstay cluster rebalance default",
		Args:    app.Exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			answer, err := client.Rebalance(c.Context(), args[0], request)
			if err != nil {
				return err
			}
			return a.Print(client.Answer, func() error { return printRebalance(a, answer) })
		},
	}
	command.Flags().BoolVar(&request.DryRun, "dry-run", false, "only show what would move")
	command.Flags().StringVar(&request.Reason, "reason", "", "why; kept in the cluster's history")
	a.OutputFlag(command)
	return command
}

func printRebalance(a *app.App, r *fleet.Rebalance) error {
	fmt.Fprintf(a.Stdout, "Cluster %s: %s.\n", r.Cluster, r.Why)
	if len(r.Moves) > 0 {
		fmt.Fprintln(a.Stdout)
		t := app.NewTable(a.Stdout, "MOVES", "FROM", "TO", "TARGETS")
		for _, m := range r.Moves {
			what, targets := "target "+m.Target, ""
			if m.Shard != nil {
				what, targets = fmt.Sprintf("shard %d", *m.Shard), fmt.Sprint(len(m.Targets))
			}
			t.Row(what, m.From, m.To, targets)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(r.Agents) == 0 || r.Mode == fleet.ActivePassive {
		return nil
	}
	fmt.Fprintln(a.Stdout)
	t := app.NewTable(a.Stdout, "AGENT", "SHARDS", "TARGETS")
	for _, g := range r.Agents {
		t.Row(g.AgentID, change(g.ShardsBefore, g.Shards), change(g.TargetsBefore, g.Targets))
	}
	return t.Flush()
}

func change(before, after int) string {
	if before == after {
		return fmt.Sprint(after)
	}
	return fmt.Sprintf("%d → %d", before, after)
}

func targetsCommand(a *app.App) *cobra.Command {
	var request api.TargetsRequest
	command := &cobra.Command{
		Use:     "targets NAME",
		Short:   "List a cluster's deployment targets and who looks after them; add and remove some",
		Example: "  mainstay cluster targets default\n  mainstay cluster targets default --add host-1,host-2 --remove host-9",
		Args:    app.Exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(request.Add)+len(request.Remove) > 0 {
				client, err := a.Client()
				if err != nil {
					return err
				}
				if err := client.ChangeTargets(c.Context(), args[0], request); err != nil {
					return err
				}
			}
			list := func(s *client.Client) *client.List[api.Target] { return s.Targets(args[0]) }
			return app.PrintList(c, a, list, 0, printTargets)
		},
	}
	command.Flags().StringSliceVar(&request.Add, "add", nil, "targets to add, separated by commas")
	command.Flags().StringSliceVar(&request.Remove, "remove", nil, "targets to remove")
	a.OutputFlag(command)
	return command
}

func printTargets(a *app.App, targets []api.Target) error {
	if len(targets) == 0 {
		_, err := fmt.Fprintln(a.Stdout, "The cluster has no targets. Add some with --add.")
		return err
	}
	t := app.NewTable(a.Stdout, "TARGET", "AGENT", "SHARD")
	for i := range targets {
		shard := ""
		if targets[i].Shard != nil {
			shard = fmt.Sprint(*targets[i].Shard)
		}
		t.Row(targets[i].ID, targets[i].Agent, shard)
	}
	return t.Flush()
}
