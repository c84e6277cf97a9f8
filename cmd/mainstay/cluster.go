package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
)

func (a *app) clusterCommand() *cobra.Command {
	command := &cobra.Command{Use: "cluster", Short: "Create, list, show, change, pause and delete clusters"}
	a.serverFlag(command)
	command.AddCommand(a.clusterCreateCommand(), a.clusterListCommand(), a.clusterGetCommand(), a.clusterMembersCommand(), a.clusterHealthCommand(),
		a.clusterUpdateCommand(), a.clusterApplyCommand(), a.clusterPauseCommand(), a.clusterResumeCommand(), a.clusterScaleCommand(), a.clusterScalingCommand(), a.clusterRebalanceCommand(), a.clusterTargetsCommand(), a.clusterSyncCommand(), a.clusterReleaseBrakeCommand(), a.clusterDeleteCommand())
	return command
}

func (a *app) clusterCreateCommand() *cobra.Command {
	command := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a cluster",
		Example: "  mainstay cluster create studio --min-agents 2 --desired-agents 5\n  mainstay cluster create shared --tenant-weight acme=5 --tenant-weight trial=0.5",
		Args:    exactly("a name"),
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
				return withExit(exitUsage, err)
			}
			settings["name"] = args[0]
			client, err := a.client()
			if err != nil {
				return err
			}
			var cluster api.Cluster
			raw, err := client.call(c.Context(), http.MethodPost, clustersPath, 0, settings, &cluster)
			if err != nil {
				return err
			}
			return a.print(raw, func() error {
				_, err := fmt.Fprintf(a.stdout, "Cluster %s is there. Agents join it with: mainstay agent run --cluster %s\n", cluster.Name, cluster.Name)
				return err
			})
		},
	}
	addClusterFlags(command.Flags())
	command.Flags().Int("shards", 0, "shards of a sharded cluster, fixed from then on (default 16)")
	a.outputFlag(command)
	return command
}

func (a *app) clusterListCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "list", Short: "List clusters", Example: "  mainstay cluster list", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			return printList(c, a, clustersPath, "clusters", nil, 0, func(clusters []api.Cluster) error {
				if len(clusters) == 0 {
					_, err := fmt.Fprintln(a.stdout, "There are no clusters. Create one with: mainstay cluster create NAME")
					return err
				}
				t := newTable(a.stdout, "CLUSTER", "STATUS", "MODE", "HEALTHY", "AGENTS", "LEADER", "CREATED", "PAUSED")
				for i := range clusters {
					k := &clusters[i]
					t.row(k.Name, string(k.Status), string(k.ReplicationMode), fmt.Sprint(k.HealthyAgentCount), fmt.Sprint(k.AgentCount), k.Leader, a.ago(k.CreatedAt), a.pausedText(k))
				}
				return t.flush()
			})
		},
	}
	a.outputFlag(command)
	return command
}

func (a *app) clusterGetCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "get NAME", Short: "Show a cluster", Example: "  mainstay cluster get default", Args: exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			var k api.Cluster
			raw, err := client.call(c.Context(), http.MethodGet, pathOf(clustersPath, args[0]), 0, nil, &k)
			if err != nil {
				return err
			}
			return a.print(raw, func() error { return a.printCluster(&k) })
		},
	}
	a.outputFlag(command)
	return command
}

func (a *app) clusterMembersCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "members NAME", Short: "List a cluster's members", Example: "  mainstay cluster members default", Args: exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			return printList(c, a, pathOf(clustersPath, args[0], "members"), "members", nil, 0, a.printAgents)
		},
	}
	a.outputFlag(command)
	return command
}

func (a *app) clusterDeleteCommand() *cobra.Command {
	var force bool
	var revision string
	command := &cobra.Command{
		Use: "delete NAME", Short: "Delete a cluster", Example: "  mainstay cluster delete studio", Args: exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			path := pathOf(clustersPath, args[0])
			if force {
				path += "?force=true"
			}
			if _, err := client.ifRevision(c.Context(), revision, http.MethodDelete, path, nil, nil); err != nil {
				return err
			}
			return a.print(map[string]string{"deleted": args[0]}, func() error {
				_, err := fmt.Fprintf(a.stdout, "Cluster %s is deleted.\n", args[0])
				return err
			})
		},
	}
	command.Flags().BoolVar(&force, "force", false, "delete it although it has online agents")
	ifRevisionFlag(command, &revision)
	a.outputFlag(command)
	return command
}
