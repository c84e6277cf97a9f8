package agent

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
)

// ClusterCommands are what the group of clusters shows of their agents.
func ClusterCommands(a *app.App) []*cobra.Command {
	return []*cobra.Command{clusterMembersCommand(a), clusterHealthCommand(a)}
}

func clusterHealthCommand(a *app.App) *cobra.Command {
	return app.Show(a, &cobra.Command{
		Use:     "health NAME",
		Short:   "Show how well the agents of a cluster do their work",
		Example: "  mainstay cluster health default",
		Args:    app.Exactly("a cluster's name"),
	}, func(ctx context.Context, s *client.Client, args []string) (*api.ClusterHealth, error) {
		return s.Clusters.Health(ctx, args[0])
	}, func(a *app.App, h *api.ClusterHealth) error {
		fmt.Fprintf(a.Stdout, "Cluster %s is %s; score %s\n\n", h.Cluster, h.Status, score(h.Score))
		t := app.NewTable(a.Stdout, "AGENT", "STATUS", "HEALTH", "SCORE", "WHY")
		for i := range h.Agents {
			g := &h.Agents[i]
			t.Row(g.AgentID, string(g.Status), string(g.Level), score(g.Score), worst(g))
		}
		return t.Flush()
	})
}

func clusterMembersCommand(a *app.App) *cobra.Command {
	return app.List(a, &cobra.Command{
		Use: "members NAME", Short: "List a cluster's members", Args: app.Exactly("a cluster's name"),
		Example: "  mainstay cluster members default",
	}, func(s *client.Client, args []string) *client.List[api.Agent] { return s.Clusters.Members(args[0]) }, printAgents)
}
