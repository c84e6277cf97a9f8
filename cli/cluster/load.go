package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
)

func loadCommand(a *app.App) *cobra.Command {
	return a.Watched(app.Show(a, &cobra.Command{
		Use: "load NAME", Short: "Show how a cluster's work is spread over its agents", Args: app.Exactly("a cluster's name"),
		Example: "  mainstay cluster load default",
	}, func(ctx context.Context, s *client.Client, args []string) (*api.ClusterLoad, error) {
		return s.Clusters.Load(ctx, args[0])
	}, printLoad))
}

func printLoad(a *app.App, l *api.ClusterLoad) error {
	header := []string{"AGENT", "STATUS", "LOAD", "RUNNING", "SLOTS", "WAITING FOR IT"}
	none := "No agent yet. Start one: mainstay agent run --cluster " + l.Cluster
	if err := app.PrintTable(a, l.Agents, none, header, func(g *api.AgentLoad) []string {
		load := "?"
		if g.Load != nil {
			load = fmt.Sprintf("%.0f %%", *g.Load)
		}
		return []string{g.AgentID, string(g.Status), load, fmt.Sprint(g.Running), fmt.Sprint(g.Slots),
			fmt.Sprint(g.QueueLength)}
	}); err != nil {
		return err
	}
	return a.Sayf("%d tasks run, about %d wait; mean load %.0f %%\n", l.Running, l.Waiting, l.Average)
}
