package main

import (
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway"
)

// clusterFlags are the settings of a cluster as flags.
type clusterFlags struct {
	gateway.ClusterSettings
	mode, selection, healing                 string
	lease, transfers, brakeWindow, retention time.Duration
	healingEvery, patience                   time.Duration
	elections, expires                       time.Duration
	weights                                  []string
}

func (f *clusterFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.TargetGroup, "target-group", "", "group of deployment targets that it serves")
	flags.IntVar(&f.MinAgents, "min-agents", 0, "with fewer online agents the cluster is critical")
	flags.IntVar(&f.DesiredAgents, "desired-agents", 0, "with fewer online agents the cluster is degraded")
	flags.IntVar(&f.MaxAgents, "max-agents", 0, "more agents are refused (default 1000)")
	flags.StringVar(&f.mode, "replication-mode", "", "active_active, active_passive or sharded (default active_active)")
	flags.StringVar(&f.selection, "selection-strategy", "", "how a failover's target is picked: standby, least_loaded, round_robin or affinity (default least_loaded)")
	flags.DurationVar(&f.lease, "role-lease", 0, "how long a leader or shard owner may go on without hearing from its hub (default 5s)")
	flags.DurationVar(&f.elections, "election-interval", 0, "the longest between two looks at a leader or shard owner (default a third of the role lease)")
	flags.BoolVar(&f.ManualElection, "manual-election", false, "a leader that was lost keeps its seat until it is back, or a person acts")
	flags.IntVar(&f.TaskDefaults.MaxAttempts, "task-max-attempts", 0, "attempts of its tasks that may fail, where a task does not say (default 3)")
	flags.IntVar(&f.TaskDefaults.MaxTransfers, "task-max-transfers", 0, "agents that its tasks may be lost with, where a task does not say (default 3)")
	flags.DurationVar(&f.expires, "task-expires-in", 0, "how long its tasks may wait for an agent, where a task does not say (default 1h)")
	flags.DurationVar(&f.transfers, "task-transfer-timeout", 0, "how long a failover watches the tasks that it moves (default 5m)")
	flags.DurationVar(&f.retention, "dead-letter-retention", 0, "how long a dead letter of its tasks is kept for a retry (default 168h)")
	flags.Float64Var(&f.Brake.Share, "brake-share", 0, "the brake holds failovers when more than this share of the agents vanishes at once; 1 turns it off (default 0.5)")
	flags.IntVar(&f.Brake.MinLost, "brake-min-lost", 0, "the brake holds failovers when at least so many agents vanish at once, if they are also more than the share (default 3)")
	flags.DurationVar(&f.brakeWindow, "brake-window", 0, "what the brake takes for at once (default 10s)")
	flags.StringVar(&f.healing, "healing", "", "what the healing cycle may do: on, dry_run (decide and record only) or off (default on)")
	flags.DurationVar(&f.healingEvery, "healing-interval", 0, "time between two looks of the healing cycle, 5s to 1h (default 1m)")
	flags.DurationVar(&f.patience, "healing-patience", 0, "how long something must be wrong before healing acts (default 30s)")
	flags.StringArrayVar(&f.weights, "tenant-weight", nil, "a tenant's share while work of several waits, as tenant=weight, 0.1 to 100 (default 1 each); may be repeated")
}

// request is the cluster to create.
func (f *clusterFlags) request(name string) (*gateway.ClusterRequest, error) {
	weights, err := f.tenantWeights()
	if err != nil {
		return nil, err
	}
	r := &gateway.ClusterRequest{Name: name, ClusterSettings: f.ClusterSettings}
	r.ReplicationMode, r.Selection = fleet.ReplicationMode(f.mode), fleet.SelectionStrategy(f.selection)
	r.RoleLease, r.TransferTimeout, r.Brake.Window = fleet.Duration(f.lease), fleet.Duration(f.transfers), fleet.Duration(f.brakeWindow)
	r.DeadLetterRetention, r.TenantWeights = fleet.Duration(f.retention), weights
	r.SelfHealing = gateway.HealingSettings{Mode: fleet.HealingMode(f.healing), CycleInterval: fleet.Duration(f.healingEvery), Patience: fleet.Duration(f.patience)}
	r.ElectionInterval, r.TaskDefaults.ExpiresIn = fleet.Duration(f.elections), fleet.Duration(f.expires)
	config := fleet.ClusterConfig{
		ElectionInterval: r.ElectionInterval, TaskDefaults: fleet.TaskDefaults(r.TaskDefaults),
		Name: r.Name, TargetGroup: r.TargetGroup, MinAgents: r.MinAgents, DesiredAgents: r.DesiredAgents, MaxAgents: r.MaxAgents,
		ReplicationMode: r.ReplicationMode, Shards: r.Shards, Selection: r.Selection, RoleLease: r.RoleLease, TransferTimeout: r.TransferTimeout,
		DeadLetterRetention: r.DeadLetterRetention,
		Brake:               fleet.BrakePolicy{Share: r.Brake.Share, MinLost: r.Brake.MinLost, Window: r.Brake.Window}, TenantWeights: weights,
		SelfHealing: fleet.HealingPolicy(r.SelfHealing),
	}
	if err := config.WithDefaults().Validate(); err != nil {
		return nil, withExit(exitUsage, err)
	}
	return r, nil
}

// patch holds the flags that were given.
func (f *clusterFlags) patch(c *cobra.Command) (*gateway.ClusterPatch, error) {
	weights, err := f.tenantWeights()
	if err != nil {
		return nil, err
	}
	given := c.Flags().Changed
	p := &gateway.ClusterPatch{
		TargetGroup: when(given("target-group"), f.TargetGroup), MinAgents: when(given("min-agents"), f.MinAgents),
		DesiredAgents: when(given("desired-agents"), f.DesiredAgents), MaxAgents: when(given("max-agents"), f.MaxAgents),
		ReplicationMode: when(given("replication-mode"), fleet.ReplicationMode(f.mode)), Selection: when(given("selection-strategy"), fleet.SelectionStrategy(f.selection)),
		RoleLease: when(given("role-lease"), fleet.Duration(f.lease)), TransferTimeout: when(given("task-transfer-timeout"), fleet.Duration(f.transfers)),
		DeadLetterRetention: when(given("dead-letter-retention"), fleet.Duration(f.retention)), TenantWeights: weights,
	}
	brake := gateway.BrakePatch{Share: when(given("brake-share"), f.Brake.Share), MinLost: when(given("brake-min-lost"), f.Brake.MinLost),
		Window: when(given("brake-window"), fleet.Duration(f.brakeWindow))}
	p.ManualElection, p.ElectionInterval = when(given("manual-election"), f.ManualElection), when(given("election-interval"), fleet.Duration(f.elections))
	defaults := gateway.TaskDefaultsPatch{MaxAttempts: when(given("task-max-attempts"), f.TaskDefaults.MaxAttempts),
		MaxTransfers: when(given("task-max-transfers"), f.TaskDefaults.MaxTransfers), ExpiresIn: when(given("task-expires-in"), fleet.Duration(f.expires))}
	if defaults != (gateway.TaskDefaultsPatch{}) {
		p.TaskDefaults = &defaults
	}
	if brake != (gateway.BrakePatch{}) {
		p.Brake = &brake
	}
	healing := gateway.HealingPatch{Mode: when(given("healing"), fleet.HealingMode(f.healing)), CycleInterval: when(given("healing-interval"), fleet.Duration(f.healingEvery)),
		Patience: when(given("healing-patience"), fleet.Duration(f.patience))}
	if healing != (gateway.HealingPatch{}) {
		p.SelfHealing = &healing
	}
	return p, nil
}

func when[T any](given bool, value T) *T {
	if !given {
		return nil
	}
	return &value
}

func (f *clusterFlags) tenantWeights() (map[string]float64, error) {
	if len(f.weights) == 0 {
		return nil, nil
	}
	weights := make(map[string]float64, len(f.weights))
	for _, text := range f.weights {
		tenant, number, _ := strings.Cut(text, "=")
		weight, err := strconv.ParseFloat(number, 64)
		if err != nil || fleet.ValidateID("tenant", tenant) != nil {
			return nil, usageError("--tenant-weight must be like acme=5")
		}
		weights[tenant] = weight
	}
	return weights, nil
}

func (a *app) clusterUpdateCommand() *cobra.Command {
	var settings clusterFlags
	var revision string
	var scaling scalingFlags
	command := &cobra.Command{
		Use:   "update NAME",
		Short: "Change some settings of a cluster; the others stay",
		Example: `  mainstay cluster update studio --desired-agents 8
  mainstay cluster update shared --tenant-weight acme=5 --tenant-weight trial=0`,
		Args: exactly("a cluster's name"),
		RunE: func(c *cobra.Command, args []string) error {
			patch, err := settings.patch(c)
			if err != nil {
				return err
			}
			if patch.Scaling, err = scaling.settings(c); err != nil {
				return err
			}
			if reflect.ValueOf(*patch).IsZero() {
				return usageError("give at least one setting to change")
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			var k gateway.Cluster
			raw, err := client.ifRevision(c.Context(), revision, http.MethodPatch, pathOf(clustersPath, args[0]), patch, &k)
			if err != nil {
				return err
			}
			return a.print(raw, func() error {
				if _, err := fmt.Fprintf(a.stdout, "Cluster %s is changed.\n\n", k.Name); err != nil {
					return err
				}
				return a.printCluster(&k)
			})
		},
	}
	settings.add(command)
	scaling.add(command)
	command.Flags().Lookup("tenant-weight").Usage = "a tenant's share while work of several waits, as tenant=weight, 0.1 to 100; 0 takes it back to 1; may be repeated"
	ifRevisionFlag(command, &revision)
	a.outputFlag(command)
	return command
}

func ifRevisionFlag(c *cobra.Command, revision *string) {
	c.Flags().StringVar(revision, "if-revision", "", "only if its settings are still of this revision, as cluster get shows it")
}
