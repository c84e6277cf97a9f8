package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// appliedCluster is the result for one cluster of the file.
type appliedCluster struct {
	Cluster string          `json:"cluster"`
	Action  string          `json:"action"` // created, changed or unchanged; with --dry-run, what would be
	Changes []settingChange `json:"changes,omitempty"`
}

// settingChange is one setting that differs.
type settingChange struct {
	Setting string `json:"setting"`
	From    any    `json:"from"`
	To      any    `json:"to"`
}

func applyCommand(a *app.App) *cobra.Command {
	var dryRun bool
	command := a.Call(&cobra.Command{
		Use:   "apply FILE",
		Short: "Make clusters as a configuration file says, and give those that exist its settings",
		Long: `Make clusters as a configuration file says (its sections clusters and agent_cluster). One that does not exist is created.
One that does gets the file's settings as a whole: what the file leaves out takes its default. Clusters that the file does
not name stay as they are. What a person changes in between is not overwritten unseen: the command fails instead, and can
be repeated.`,
		Example: "  mainstay cluster apply mainstay.yaml --dry-run\n  mainstay cluster apply mainstay.yaml",
		Args:    app.Exactly("a configuration file"),
	}, func(ctx context.Context, s *app.Client, args []string) error {
		settings, err := config.Load(args[0])
		if err != nil {
			return app.WithExit(app.ExitUsage, err)
		}
		wanted := settings.ClusterConfigs()
		if len(wanted) == 0 {
			return app.UsageError(
				"%s describes no clusters: they stand in its sections clusters and agent_cluster",
				args[0],
			)
		}
		var applied []appliedCluster
		for _, config := range wanted {
			done, err := applyCluster(ctx, s, config, dryRun)
			if err != nil {
				return fmt.Errorf("cluster %s: %w", config.Name, err)
			}
			applied = append(applied, done)
		}
		return a.Print(map[string]any{"clusters": applied, "dry_run": dryRun},
			func() error { return printApplied(a, applied) })
	})
	command.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done, and do nothing")
	return command
}

// applyCluster creates a cluster, or replaces its settings if they differ.
func applyCluster(ctx context.Context, c *app.Client, config api.ClusterConfig, dryRun bool) (appliedCluster, error) {
	done := appliedCluster{Cluster: config.Name, Action: "unchanged"}
	wanted, err := settingsOf(config.WithDefaults())
	if err != nil {
		return done, err
	}
	present, err := c.Clusters.Get(ctx, config.Name)
	switch {
	case client.IsNotFound(err):
		done.Action = "created"
		if !dryRun {
			wanted["name"] = config.Name
			_, err = c.Clusters.Create(ctx, wanted)
			return done, err
		}
		return done, nil
	case err != nil:
		return done, err
	}
	if done.Changes, err = settingChanges(c.Answer, wanted); err != nil || len(done.Changes) == 0 {
		return done, err
	}
	done.Action = "changed"
	if !dryRun {
		_, err = c.Clusters.Replace(ctx, config.Name, wanted, present.Revision)
	}
	return done, err
}

// settingsOf are a cluster's settings as the API takes them, without its name. Settings that are fixed unless the
// cluster is sharded are left out.
func settingsOf(config api.ClusterConfig) (map[string]any, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode the settings: %w", err)
	}
	settings := map[string]any{}
	if err := json.Unmarshal(text, &settings); err != nil {
		return nil, fmt.Errorf("encode the settings: %w", err)
	}
	delete(settings, "name")
	if config.ReplicationMode != api.Sharded {
		delete(settings, "shards")
	}
	return settings, nil
}

// settingChanges compares a cluster as the API shows it with the settings that are wanted.
func settingChanges(raw json.RawMessage, wanted map[string]any) ([]settingChange, error) {
	present := map[string]any{}
	if err := json.Unmarshal(raw, &present); err != nil {
		return nil, fmt.Errorf("read the cluster: %w", err)
	}
	names := maps.Clone(wanted)
	for i := range reflect.TypeFor[api.ClusterConfig]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[api.ClusterConfig]().Field(i).Tag.Get("json"), ",")
		names[name] = nil
	}
	delete(names, "name")
	if _, sharded := wanted["shards"]; !sharded {
		delete(names, "shards")
	}
	var changes []settingChange
	for _, name := range slices.Sorted(maps.Keys(names)) {
		from, to := present[name], wanted[name]
		if !reflect.DeepEqual(from, to) && (!isNothing(from) || !isNothing(to)) {
			changes = append(changes, settingChange{name, from, to})
		}
	}
	return changes, nil
}

// isNothing reports whether a setting is left out, or is written out as nothing.
func isNothing(value any) bool {
	return value == nil || reflect.ValueOf(value).IsZero() || reflect.ValueOf(value).Kind() == reflect.Map &&
		reflect.ValueOf(value).Len() == 0
}

func printApplied(a *app.App, applied []appliedCluster) error {
	t := app.NewTable(a.Stdout, "CLUSTER", "ACTION", "SETTING", "FROM", "TO")
	text := func(value any) string {
		if value == nil {
			return "(none)"
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			return "?"
		}
		return strings.Trim(string(encoded), `"`)
	}
	for _, done := range applied {
		if len(done.Changes) == 0 {
			t.Row(done.Cluster, done.Action, "", "", "")
		}
		for i, change := range done.Changes {
			name, action := done.Cluster, done.Action
			if i > 0 {
				name, action = " ", " "
			}
			t.Row(name, action, change.Setting, text(change.From), text(change.To))
		}
	}
	return t.Flush()
}
