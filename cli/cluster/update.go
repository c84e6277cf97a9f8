package cluster

import (
	"fmt"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
)

func updateCommand(a *app.App) *cobra.Command {
	var revision string
	command := &cobra.Command{
		Use:   "update NAME",
		Short: "Change some settings of a cluster; the others stay",
		Example: `  mainstay cluster update studio --desired-agents 8
  mainstay cluster update shared --tenant-weight acme=5 --tenant-weight trial=0`,
		Args: app.Exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			changes, err := settingsGiven(c.Flags())
			if err != nil {
				return err
			}
			if len(changes) == 0 {
				return app.UsageError("give at least one setting to change")
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			k, err := client.UpdateCluster(c.Context(), args[0], changes, revision)
			if err != nil {
				return err
			}
			return a.Print(client.Answer, func() error {
				if _, err := fmt.Fprintf(a.Stdout, "Cluster %s is changed.\n\n", k.Name); err != nil {
					return err
				}
				return printCluster(a, k)
			})
		},
	}
	addClusterFlags(command.Flags())
	command.Flags().Lookup(
		"tenant-weight").Usage = "a tenant's share while work of several waits, as tenant=weight, 0.1 to 100; 0 takes it back to 1; may be repeated"
	ifRevisionFlag(command, &revision)
	a.OutputFlag(command)
	return command
}

func ifRevisionFlag(c *cobra.Command, revision *string) {
	c.Flags().StringVar(revision, "if-revision", "",
		"only if its settings are still of this revision, as cluster get shows it")
}
