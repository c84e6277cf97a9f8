package agent

import (
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
	command := &cobra.Command{
		Use:     "health NAME",
		Short:   "Show how well the agents of a cluster do their work",
		Example: "  mainstay cluster health default",
		Args:    app.Exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			h, err := client.ClusterHealth(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.Print(client.Answer, func() error {
				fmt.Fprintf(a.Stdout, "Cluster %s is %s; score %s\n\n", h.Cluster, h.Status, score(h.Score))
				t := app.NewTable(a.Stdout, "AGENT", "STATUS", "HEALTH", "SCORE", "WHY")
				for i := range h.Agents {
					g := &h.Agents[i]
					t.Row(g.AgentID, string(g.Status), string(g.Level), score(g.Score), worst(g))
				}
				return t.Flush()
			})
		},
	}
	a.OutputFlag(command)
	return command
}

func clusterMembersCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "members NAME",
		Short:   "List a cluster's members",
		Example: "  mainstay cluster members default",
		Args:    app.Exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			list := func(s *client.Client) *client.List[api.Agent] { return s.Members(args[0]) }
			return app.PrintList(c, a, list, 0, printAgents)
		},
	}
	a.OutputFlag(command)
	return command
}
