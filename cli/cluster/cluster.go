// Package cluster has the commands of clusters, of their lanes and of their scaling.
package cluster

import (
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

// Command is the group of clusters.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "cluster", Short: "Create, list, show, change, pause and delete clusters"}
	a.ServerFlag(command)
	command.AddCommand(createCommand(a), listCommand(a), getCommand(a),
		updateCommand(a), applyCommand(a), pauseCommand(a), resumeCommand(a), scaleCommand(a), statusCommand(
			a), rebalanceCommand(a), targetsCommand(a), syncCommand(a), releaseBrakeCommand(a), deleteCommand(a))
	return command
}

func createCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a cluster",
		Example: "  mainstay cluster create studio --min-agents 2 --desired-agents 5\n  mainstay cluster create shared --tenant-weight acme=5 --tenant-weight trial=0.5",
		Args:    app.Exactly("a name"),
		RunE: func(c *cobra.Command, args []string) error {
			settings, err := settingsGiven(c.Flags())
			if err != nil {
				return err
			}
			config, err := fleet.ClusterConfig{Name: args[0]}.Changed(settings)
			if err == nil {
				err = config.WithDefaults().Validate()
			}
			if err != nil {
				return app.WithExit(app.ExitUsage, err)
			}
			settings["name"] = args[0]
			client, err := a.Client()
			if err != nil {
				return err
			}
			cluster, err := client.CreateCluster(c.Context(), settings)
			if err != nil {
				return err
			}
			return a.Print(client.Answer, func() error {
				_, err := fmt.Fprintf(a.Stdout,
					"Cluster %s is there. Agents join it with: mainstay agent run --cluster %s\n", cluster.Name, cluster.Name)
				return err
			})
		},
	}
	addClusterFlags(command.Flags())
	command.Flags().Int("shards", 0, "shards of a sharded cluster, fixed from then on (default 16)")
	a.OutputFlag(command)
	return command
}

func listCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use: "list", Short: "List clusters", Example: "  mainstay cluster list", Args: app.Exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			return app.PrintList(c, a, (*client.Client).Clusters, 0, func(_ *app.App, clusters []api.Cluster) error {
				if len(clusters) == 0 {
					_, err := fmt.Fprintln(a.Stdout,
						"There are no clusters. Create one with: mainstay cluster create NAME")
					return err
				}
				t := app.NewTable(a.Stdout, "CLUSTER", "STATUS", "MODE", "HEALTHY", "AGENTS", "LEADER", "CREATED",
					"PAUSED")
				for i := range clusters {
					k := &clusters[i]
					t.Row(k.Name, string(k.Status), string(k.ReplicationMode), fmt.Sprint(k.HealthyAgentCount),
						fmt.Sprint(k.AgentCount), k.Leader, a.Ago(k.CreatedAt), pausedText(a, k))
				}
				return t.Flush()
			})
		},
	}
	a.OutputFlag(command)
	return command
}

func getCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "get NAME",
		Short:   "Show a cluster",
		Example: "  mainstay cluster get default",
		Args:    app.Exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			k, err := client.Cluster(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.Print(client.Answer, func() error { return printCluster(a, k) })
		},
	}
	a.OutputFlag(command)
	return command
}

func deleteCommand(a *app.App) *cobra.Command {
	var force bool
	var revision string
	command := &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a cluster",
		Example: "  mainstay cluster delete studio",
		Args:    app.Exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			if err := client.DeleteCluster(c.Context(), args[0], force, revision); err != nil {
				return err
			}
			return a.Print(map[string]string{"deleted": args[0]}, func() error {
				_, err := fmt.Fprintf(a.Stdout, "Cluster %s is deleted.\n", args[0])
				return err
			})
		},
	}
	command.Flags().BoolVar(&force, "force", false, "delete it although it has online agents")
	ifRevisionFlag(command, &revision)
	a.OutputFlag(command)
	return command
}
