// Package cluster has the commands of clusters, of their lanes and of their scaling.
package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// resource are clusters as the command line speaks of them.
func resource(a *app.App) *app.Resource[client.Clusters] {
	return &app.Resource[client.Clusters]{App: a, Of: func(c *client.Client) client.Clusters { return c.Clusters },
		ID: "a cluster's name", Title: "Cluster", Reason: "why; kept in the history"}
}

// Command is the group of clusters.
func Command(a *app.App) *cobra.Command {
	r := resource(a)
	return a.GroupOf(&cobra.Command{Use: "cluster", Short: "Create, list, show, change, pause and delete clusters"},
		createCommand(a),
		app.ListAll(r, &cobra.Command{
			Use: "list", Short: "List clusters", Example: "  mainstay cluster list",
		}, nil, app.All(client.Clusters.List), printClusters),
		app.Get(r, &cobra.Command{
			Use: "get NAME", Short: "Show a cluster", Example: "  mainstay cluster get default",
		}, client.Clusters.Get, printCluster),
		updateCommand(a), applyCommand(a), pauseCommand(a), resumeCommand(a), scaleCommand(r), spawnCommand(r),
		app.Get(r, &cobra.Command{
			Use: "scaling NAME", Short: "Show how a cluster's number of agents is kept, and what was done about it",
			Example: "  mainstay cluster scaling builders",
		}, client.Clusters.Scaling, printScaling),
		rebalanceCommand(r), targetsCommand(a),
		a.Watched(app.Get(r, &cobra.Command{
			Use: "load NAME", Short: "Show how a cluster's work is spread over its agents",
			Example: "  mainstay cluster load default",
		}, client.Clusters.Load, printLoad)),
		syncCommand(a), releaseBrakeCommand(r), deleteCommand(r))
}

func createCommand(a *app.App) *cobra.Command {
	var command *cobra.Command
	command = app.Show(a, &cobra.Command{
		Use:   "create NAME",
		Short: "Create a cluster",
		Example: "  mainstay cluster create studio --min-agents 2 --desired-agents 5\n" +
			"  mainstay cluster create shared --tenant-weight acme=5 --tenant-weight trial=0.5",
		Args: app.Exactly("a name"),
	}, func(ctx context.Context, s *client.Client, args []string) (*api.Cluster, error) {
		settings, err := settingsGiven(command.Flags())
		if err != nil {
			return nil, err
		}
		config, err := api.ClusterConfig{Name: args[0]}.Changed(settings)
		if err == nil {
			err = config.WithDefaults().Validate()
		}
		if err != nil {
			return nil, app.WithExit(app.ExitUsage, err)
		}
		settings["name"] = args[0]
		return s.Clusters.Create(ctx, settings)
	}, func(a *app.App, k *api.Cluster) error {
		return a.Sayf("Cluster %[1]s is there. Agents join it with: mainstay agent run --cluster %[1]s\n", k.Name)
	})
	addClusterFlags(command.Flags(), true)
	return command
}

func printClusters(a *app.App, clusters []api.Cluster) error {
	header := []string{"CLUSTER", "STATUS", "MODE", "HEALTHY", "AGENTS", "LEADER", "CREATED", "PAUSED"}
	return app.PrintTable(a, clusters, noClusters, header, func(k *api.Cluster) []any {
		return []any{k.Name, k.Status, k.ReplicationMode, k.HealthyAgentCount, k.AgentCount, k.Leader, k.CreatedAt,
			pausedText(a, k)}
	})
}

const noClusters = "There are no clusters. Create one with: mainstay cluster create NAME"

func deleteCommand(r *app.Resource[client.Clusters]) *cobra.Command {
	var force bool
	var revision string
	command := app.Delete(r, &cobra.Command{
		Use: "delete NAME", Short: "Delete a cluster", Example: "  mainstay cluster delete studio",
	}, "deleted", "", func(clusters client.Clusters, ctx context.Context, name string) error {
		return clusters.Delete(ctx, name, force, revision)
	})
	command.Flags().BoolVar(&force, "force", false, "delete it although it has online agents")
	ifRevisionFlag(command, &revision)
	return command
}

func updateCommand(a *app.App) *cobra.Command {
	var revision string
	var command *cobra.Command
	command = app.Show(a, &cobra.Command{
		Use:   "update NAME",
		Short: "Change some settings of a cluster; the others stay",
		Example: `  mainstay cluster update studio --desired-agents 8
  mainstay cluster update shared --tenant-weight acme=5 --tenant-weight trial=0`,
		Args: app.Exactly("a cluster's name"),
	}, func(ctx context.Context, s *client.Client, args []string) (*api.Cluster, error) {
		changes, err := settingsGiven(command.Flags())
		if err != nil {
			return nil, err
		}
		if len(changes) == 0 {
			return nil, app.UsageError("give at least one setting to change")
		}
		return s.Clusters.Update(ctx, args[0], changes, revision)
	}, func(a *app.App, k *api.Cluster) error {
		fmt.Fprintf(a.Stdout, "Cluster %s is changed.\n\n", k.Name)
		return printCluster(a, k)
	})
	addClusterFlags(command.Flags(), false)
	command.Flags().Lookup("tenant-weight").Usage = "a tenant's share while work of several waits, as tenant=weight, " +
		"0.1 to 100; 0 takes it back to 1; may be repeated"
	ifRevisionFlag(command, &revision)
	return command
}

func ifRevisionFlag(c *cobra.Command, revision *string) {
	c.Flags().StringVar(revision, "if-revision", "",
		"only if its settings are still of this revision, as cluster get shows it")
}
