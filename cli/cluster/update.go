package cluster

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
)

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
