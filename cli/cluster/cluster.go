// Package cluster has the commands of clusters, of their lanes and of their scaling.
package cluster

import (
	"context"
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
	command.AddCommand(createCommand(a), listCommand(a), getCommand(a), updateCommand(a), applyCommand(a),
		pauseCommand(a), resumeCommand(a), scaleCommand(a), spawnCommand(a), statusCommand(a), rebalanceCommand(a),
		targetsCommand(a), loadCommand(a), syncCommand(a), releaseBrakeCommand(a), deleteCommand(a))
	return command
}

func createCommand(a *app.App) *cobra.Command {
	var command *cobra.Command
	command = app.Show(a, &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a cluster",
		Example: "  mainstay cluster create studio --min-agents 2 --desired-agents 5\n  mainstay cluster create shared --tenant-weight acme=5 --tenant-weight trial=0.5",
		Args:    app.Exactly("a name"),
	}, func(ctx context.Context, s *client.Client, args []string) (*api.Cluster, error) {
		settings, err := settingsGiven(command.Flags())
		if err != nil {
			return nil, err
		}
		config, err := fleet.ClusterConfig{Name: args[0]}.Changed(settings)
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
	addClusterFlags(command.Flags())
	command.Flags().Int("shards", 0, "shards of a sharded cluster, fixed from then on (default 16)")
	return command
}

func listCommand(a *app.App) *cobra.Command {
	return app.List(a, &cobra.Command{
		Use: "list", Short: "List clusters", Example: "  mainstay cluster list", Args: app.Exactly(),
	}, func(s *client.Client, _ []string) *client.List[api.Cluster] { return s.Clusters.List() }, printClusters)
}

func printClusters(a *app.App, clusters []api.Cluster) error {
	header := []string{"CLUSTER", "STATUS", "MODE", "HEALTHY", "AGENTS", "LEADER", "CREATED", "PAUSED"}
	return app.PrintTable(a, clusters, noClusters, header, func(k *api.Cluster) []string {
		return []string{k.Name, string(k.Status), string(k.ReplicationMode), fmt.Sprint(k.HealthyAgentCount),
			fmt.Sprint(k.AgentCount), k.Leader, a.Ago(k.CreatedAt), pausedText(a, k)}
	})
}

const noClusters = "There are no clusters. Create one with: mainstay cluster create NAME"

func getCommand(a *app.App) *cobra.Command {
	return app.Show(a, &cobra.Command{
		Use: "get NAME", Short: "Show a cluster", Args: app.Exactly("a cluster's name"),
		Example: "  mainstay cluster get default",
	}, func(ctx context.Context, s *client.Client, args []string) (*api.Cluster, error) {
		return s.Clusters.Get(ctx, args[0])
	}, printCluster)
}

func deleteCommand(a *app.App) *cobra.Command {
	var force bool
	var revision string
	command := a.Call(&cobra.Command{
		Use: "delete NAME", Short: "Delete a cluster", Args: app.Exactly("a cluster's name"),
		Example: "  mainstay cluster delete studio",
	}, func(ctx context.Context, s *app.Client, args []string) error {
		if err := s.Clusters.Delete(ctx, args[0], force, revision); err != nil {
			return err
		}
		return a.Print(map[string]string{"deleted": args[0]}, func() error {
			return a.Sayf("Cluster %s is deleted.\n", args[0])
		})
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
	addClusterFlags(command.Flags())
	command.Flags().Lookup(
		"tenant-weight").Usage = "a tenant's share while work of several waits, as tenant=weight, 0.1 to 100; 0 takes it back to 1; may be repeated"
	ifRevisionFlag(command, &revision)
	return command
}

func ifRevisionFlag(c *cobra.Command, revision *string) {
	c.Flags().StringVar(revision, "if-revision", "",
		"only if its settings are still of this revision, as cluster get shows it")
}
