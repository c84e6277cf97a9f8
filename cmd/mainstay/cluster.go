package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway"
)

func (a *app) clusterCommand() *cobra.Command {
	command := &cobra.Command{Use: "cluster", Short: "Create, list, show and delete clusters"}
	a.serverFlag(command)
	command.AddCommand(a.clusterCreateCommand(), a.clusterListCommand(), a.clusterGetCommand(), a.clusterMembersCommand(), a.clusterDeleteCommand(), a.clusterReleaseBrakeCommand())
	return command
}

func (a *app) clusterCreateCommand() *cobra.Command {
	var r gateway.ClusterRequest
	var mode, selection string
	var retention time.Duration
	command := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a cluster",
		Example: "  mainstay cluster create studio --min-agents 2 --desired-agents 5",
		Args:    exactly("a name"),
		RunE: func(c *cobra.Command, args []string) error {
			r.Name, r.ReplicationMode, r.Selection = args[0], fleet.ReplicationMode(mode), fleet.SelectionStrategy(selection)
			r.DeadLetterRetention = fleet.Duration(retention)
			config := fleet.ClusterConfig{
				Name: r.Name, TargetGroup: r.TargetGroup, MinAgents: r.MinAgents, DesiredAgents: r.DesiredAgents, MaxAgents: r.MaxAgents,
				ReplicationMode: r.ReplicationMode, Shards: r.Shards, Selection: r.Selection, DeadLetterRetention: r.DeadLetterRetention,
			}
			if err := config.WithDefaults().Validate(); err != nil {
				return withExit(exitUsage, err)
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			var cluster gateway.Cluster
			raw, err := client.call(c.Context(), http.MethodPost, clustersPath, 0, r, &cluster)
			if err != nil {
				return err
			}
			return a.print(raw, func() error {
				_, err := fmt.Fprintf(a.stdout, "Cluster %s is there. Agents join it with: mainstay agent run --cluster %s\n", cluster.Name, cluster.Name)
				return err
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&r.TargetGroup, "target-group", "", "group of deployment targets that it serves")
	flags.IntVar(&r.MinAgents, "min-agents", 0, "with fewer online agents it is critical")
	flags.IntVar(&r.DesiredAgents, "desired-agents", 0, "with fewer online agents it is degraded")
	flags.IntVar(&r.MaxAgents, "max-agents", 0, "more agents are refused (default 1000)")
	flags.StringVar(&mode, "replication-mode", "", "active_active, active_passive or sharded (default active_active)")
	flags.IntVar(&r.Shards, "shards", 0, "shards of a sharded cluster (default 16)")
	flags.StringVar(&selection, "selection-strategy", "", "how a failover's target is picked: standby, least_loaded, round_robin or affinity (default least_loaded)")
	flags.DurationVar(&retention, "dead-letter-retention", 0, "how long a dead letter is kept for a retry (default 168h)")
	a.outputFlag(command)
	return command
}

func (a *app) clusterListCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "list", Short: "List clusters", Example: "  mainstay cluster list", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			raw, clusters, _, err := list[gateway.Cluster](c.Context(), client, clustersPath, "clusters", nil, 0)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"clusters": raw}, func() error {
				if len(clusters) == 0 {
					_, err := fmt.Fprintln(a.stdout, "There are no clusters. Create one with: mainstay cluster create NAME")
					return err
				}
				t := newTable(a.stdout, "CLUSTER", "STATUS", "MODE", "HEALTHY", "AGENTS", "LEADER", "CREATED")
				for i := range clusters {
					k := &clusters[i]
					t.row(k.Name, string(k.Status), string(k.ReplicationMode), fmt.Sprint(k.HealthyAgentCount), fmt.Sprint(k.AgentCount), k.Leader, a.ago(k.CreatedAt))
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
			var k gateway.Cluster
			raw, err := client.call(c.Context(), http.MethodGet, pathOf(clustersPath, args[0]), 0, nil, &k)
			if err != nil {
				return err
			}
			return a.print(raw, func() error {
				t := newTable(a.stdout)
				t.row("Cluster", k.Name)
				t.row("Status", string(k.Status))
				t.row("Agents", fmt.Sprintf("%d healthy of %d (min %d, desired %d, max %d)", k.HealthyAgentCount, k.AgentCount, k.MinAgents, k.DesiredAgents, k.MaxAgents))
				t.row("Mode", string(k.ReplicationMode))
				if k.Shards > 0 {
					t.row("Shards", fmt.Sprint(k.Shards))
				}
				t.row("Selection", string(k.Selection))
				if k.DeadLetterRetention > 0 {
					t.row("Dead letters", "kept for "+roughly(k.DeadLetterRetention.Std()))
				}
				for _, line := range [][2]string{{"Leader", k.Leader}, {"Standbys", strings.Join(k.Standbys, ", ")}, {"Target group", k.TargetGroup}, {"Created", a.ago(k.CreatedAt)}} {
					if line[1] != "" {
						t.row(line[0], line[1])
					}
				}
				return t.flush()
			})
		},
	}
	a.outputFlag(command)
	return command
}

func (a *app) clusterMembersCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "members NAME", Short: "List a cluster's members", Example: "  mainstay cluster members default", Args: exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			raw, members, _, err := list[gateway.Agent](c.Context(), client, pathOf(clustersPath, args[0], "members"), "members", nil, 0)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"members": raw}, func() error { return a.printAgents(members) })
		},
	}
	a.outputFlag(command)
	return command
}

func (a *app) clusterDeleteCommand() *cobra.Command {
	var force bool
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
			if _, err := client.call(c.Context(), http.MethodDelete, path, 0, nil, nil); err != nil {
				return err
			}
			return a.print(map[string]string{"deleted": args[0]}, func() error {
				_, err := fmt.Fprintf(a.stdout, "Cluster %s is deleted.\n", args[0])
				return err
			})
		},
	}
	command.Flags().BoolVar(&force, "force", false, "delete it although it has online agents")
	a.outputFlag(command)
	return command
}
