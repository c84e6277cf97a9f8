package cluster

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/fleet"
)

// settingOfFlag names the setting of the API, with the objects that it is in, for each flag that gives one.
var settingOfFlag = map[string]string{
	"target-group":          "target_group",
	"min-agents":            "min_agents",
	"desired-agents":        "desired_agents",
	"max-agents":            "max_agents",
	"replication-mode":      "replication_mode",
	"selection-strategy":    "selection_strategy",
	"role-lease":            "role_lease",
	"election-interval":     "election_interval",
	"manual-election":       "manual_election",
	"task-max-attempts":     "task_defaults.max_attempts",
	"task-max-transfers":    "task_defaults.max_transfers",
	"task-expires-in":       "task_defaults.expires_in",
	"task-retry-safety":     "task_defaults.retry_safety",
	"task-stop-grace":       "task_defaults.stop_grace",
	"task-disconnect-grace": "task_defaults.disconnect_grace",
	"task-transfer-timeout": "task_transfer_timeout",
	"dead-letter-retention": "dead_letter_retention",
	"brake-share":           "brake.share",
	"brake-min-lost":        "brake.min_lost",
	"brake-window":          "brake.window",
	"healing":               "self_healing.mode",
	"healing-interval":      "self_healing.cycle_interval",
	"healing-patience":      "self_healing.patience",
	"tenant-weight":         "tenant_weights",
	"tenants":               "tenants",
	"scaling":               "scaling.mode",
	"queue-measure":         "scaling.queue_measure",
	"scale-up-queue":        "scaling.scale_up.queue_threshold",
	"scale-up-cpu":          "scaling.scale_up.cpu_threshold",
	"scale-up-cooldown":     "scaling.scale_up.cooldown",
	"scale-up-increment":    "scaling.scale_up.increment",
	"scale-down-queue":      "scaling.scale_down.queue_threshold",
	"scale-down-idle":       "scaling.scale_down.idle_timeout",
	"scale-down-cooldown":   "scaling.scale_down.cooldown",
	"scale-down-decrement":  "scaling.scale_down.decrement",
	"spawner":               "scaling.spawn.spawner",
	"platform":              "scaling.spawn.platform",
	"fallback-platform":     "scaling.spawn.fallback_platforms",
	"image":                 "scaling.spawn.image",
	"docker-pull":           "scaling.spawn.docker.pull",
	"docker-pids-limit":     "scaling.spawn.docker.pids_limit",
	"docker-writable-root":  "scaling.spawn.docker.writable_root",
	"spawn-slots":           "scaling.spawn.slots",
	"spawn-capability":      "scaling.spawn.capabilities",
	"spawn-cpu":             "scaling.spawn.resources.cpu",
	"spawn-memory":          "scaling.spawn.resources.memory",
	"spawn-storage":         "scaling.spawn.resources.storage",
	"spawn-env":             "scaling.spawn.environment",
	"spawn-join-timeout":    "scaling.spawn.join_timeout",
	"spawn-drain-timeout":   "scaling.spawn.drain_timeout",
	"spawn-backoff":         "scaling.spawn.backoff.strategy",
	"spawn-backoff-delay":   "scaling.spawn.backoff.delay",
	"spawn-backoff-max":     "scaling.spawn.backoff.max_delay",
	"shards":                "shards",
}

func addClusterFlags(flags *pflag.FlagSet) {
	flags.String("target-group", "", "group of deployment targets that it serves")
	flags.Int("min-agents", 0, "with fewer online agents the cluster is critical")
	flags.Int("desired-agents", 0, "with fewer online agents the cluster is degraded")
	flags.Int("max-agents", 0, "more agents are refused (default 1000, at most 5000)")
	flags.String("replication-mode", "", "active_active, active_passive or sharded (default active_active)")
	flags.String("selection-strategy", "",
		"how a failover's target is picked: standby, least_loaded, round_robin or affinity (default least_loaded)")
	flags.Duration("role-lease", 0,
		"how long a leader or shard owner may go on without hearing from its hub (default 3s)")
	flags.Duration("election-interval", 0,
		"the longest between two looks at a leader or shard owner (default a third of the role lease)")
	flags.Bool("manual-election", false, "a leader that was lost keeps its seat until it is back, or a person acts")
	flags.Int("task-max-attempts", 0, "attempts of its tasks that may fail, where a task does not say (default 3)")
	flags.Int("task-max-transfers", 0, "agents that its tasks may be lost with, where a task does not say (default 3)")
	flags.Duration("task-expires-in", 0,
		"how long its tasks may wait for an agent, where a task does not say (default 1h)")
	flags.Duration("task-stop-grace", 0,
		"how long the work of its tasks has to end once asked to, where a task does not say (default 30s for commands, 5s "+
			"for other work)")
	flags.Duration("task-disconnect-grace", 0,
		"how long the agent of an at_most_once or unmarked task may be out of touch, where a task does not say (default 30s)")
	flags.String(
		"task-retry-safety",
		"",
		"when its tasks may run again after their agent was lost, where a task does not say: idempotent (the default), "+
			"fenced, at_most_once or unmarked",
	)
	flags.Duration("task-transfer-timeout", 0, "how long a failover watches the tasks that it moves (default 5m)")
	flags.Duration("dead-letter-retention", 0, "how long a dead letter of its tasks is kept for a retry (default 168h)")
	flags.Float64(
		"brake-share",
		0,
		"the brake holds failovers when more than this share of the agents vanishes at once; 1 turns it off (default 0.5)",
	)
	flags.Int(
		"brake-min-lost",
		0,
		"the brake holds failovers when at least so many agents vanish at once, if they are also more than the share "+
			"(default 3)",
	)
	flags.Duration("brake-window", 0, "what the brake takes for at once (default 10s)")
	flags.String("healing", "",
		"what the healing cycle may do: on, dry_run (decide and record only) or off (default on)")
	flags.Duration("healing-interval", 0, "time between two looks of the healing cycle, 5s to 1h (default 1m)")
	flags.Duration("healing-patience", 0, "how long something must be wrong before healing acts (default 30s)")
	flags.StringSlice("tenants", nil, "only tokens of these tenants, and of none, may use the cluster; \"\": all "+
		"(default all)")
	flags.StringArray("tenant-weight", nil,
		"a tenant's share while work of several waits, as tenant=weight, 0.1 to 100 (default 1 each); may be repeated")
	flags.String(
		"scaling",
		"",
		"off, manual (as many agents as desired are kept) or auto (rules move the number between min and max) (default off)",
	)
	flags.String("queue-measure", "", "what the queue thresholds count: total or per_agent (default total)")
	flags.Int("scale-up-queue", 0, "start agents when more tasks than this wait (default 5)")
	flags.Float64(
		"scale-up-cpu",
		0,
		"start agents when none is idle and their machines' cpu is busier than this, in percent; 100: never (default 80)",
	)
	flags.Duration("scale-up-cooldown", 0, "least time from one start of agents to the next (default 1m)")
	flags.Int("scale-up-increment", 0, "agents started at a time (default 1)")
	flags.Int("scale-down-queue", 0, "stop agents when fewer tasks than this wait (default 1)")
	flags.Duration("scale-down-idle", 0, "stop only agents that had nothing to do for so long (default 5m)")
	flags.Duration("scale-down-cooldown", 0, "least time from the last start or stop of agents to a stop (default 5m)")
	flags.Int("scale-down-decrement", 0, "agents stopped at a time (default 1)")
	flags.String("spawner", "", "name of the spawner that starts agents (default: any)")
	flags.String("platform", "", "where started agents run: process, docker, kubernetes, coolify or ec2 (default: the "+
		"named spawner's, else process)")
	flags.StringArray("fallback-platform", nil, "platform to try where none before it takes the agents; may be repeated")
	flags.String("image", "", "container image of started agents (default: the spawner's)")
	flags.String("docker-pull", "", "when the engine fetches the image: missing, always or never (default missing)")
	flags.Int("docker-pids-limit", 0, "processes and threads of a container, at most (default 1000)")
	flags.Bool("docker-writable-root", false, "let containers write to the image's files")
	flags.Int("spawn-slots", 0, "tasks that a started agent runs at a time (default: as the spawner has it)")
	flags.StringArray("spawn-capability", nil, "what started agents can do; may be repeated")
	flags.String("spawn-cpu", "", "cores of a started agent, as 2 or 500m")
	flags.String("spawn-memory", "", "memory of a started agent, as 4Gi")
	flags.String("spawn-storage", "", "storage of a started agent, as 10Gi")
	flags.StringArray("spawn-env", nil,
		"variable of a started agent's environment, as NAME=value; no place for secrets; may be repeated")
	flags.Duration("spawn-join-timeout", 0, "how long a started agent may take to come online (default 1m)")
	flags.Duration("spawn-drain-timeout", 0, "how long an agent that is to stop may finish its work (default 5m)")
	flags.String("spawn-backoff", "",
		"how tries are spaced while agents cannot be started: constant or exponential (default exponential)")
	flags.Duration("spawn-backoff-delay", 0, "wait after agents could not be started for the first time (default 10s)")
	flags.Duration("spawn-backoff-max", 0, "longest wait between tries to start agents (default 5m)")
	app.MayBeEmpty(flags, "target-group", "spawner", "image", "spawn-cpu", "spawn-memory", "spawn-storage") // clears it
	for name, path := range settingOfFlag {
		if flags.Lookup(name) != nil {
			app.Bounded[fleet.ClusterConfig](flags, map[string]string{name: path})
		}
	}
}

// settingsGiven are the settings of the flags that were given, in the form of the API.
func settingsGiven(flags *pflag.FlagSet) (settings map[string]any, err error) {
	settings = map[string]any{}
	flags.Visit(func(flag *pflag.Flag) {
		path, known := settingOfFlag[flag.Name]
		if !known || err != nil {
			return
		}
		at, names := settings, strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			inner, made := at[name].(map[string]any)
			if !made {
				inner = map[string]any{}
				at[name] = inner
			}
			at = inner
		}
		at[names[len(names)-1]], err = settingOf(flag)
	})
	return settings, err
}

// settingOf is the value of a flag.
func settingOf(flag *pflag.Flag) (any, error) {
	switch list, isList := flag.Value.(pflag.SliceValue); {
	case flag.Name == "tenant-weight":
		return tenantWeights(list.GetSlice())
	case flag.Name == "spawn-env":
		return environment(list.GetSlice())
	case isList:
		return list.GetSlice(), nil
	}
	switch text := flag.Value.String(); flag.Value.Type() {
	case "int", "float64", "bool":
		return json.RawMessage(text), nil
	default:
		return text, nil
	}
}

func tenantWeights(entries []string) (map[string]any, error) {
	weights := make(map[string]any, len(entries))
	for _, text := range entries {
		tenant, number, _ := strings.Cut(text, "=")
		weight, err := strconv.ParseFloat(number, 64)
		if err != nil || fleet.ValidateID("tenant", tenant) != nil {
			return nil, app.UsageError("--tenant-weight must be like acme=5")
		}
		weights[tenant] = weight
	}
	return weights, nil
}

func environment(entries []string) (map[string]any, error) {
	variables := make(map[string]any, len(entries))
	for _, entry := range entries {
		name, value, found := strings.Cut(entry, "=")
		if !found || name == "" {
			return nil, app.UsageError("--spawn-env must be like NAME=value")
		}
		variables[name] = value
	}
	return variables, nil
}
