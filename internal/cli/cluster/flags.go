package cluster

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
)

type setting struct{ flag, path, usage string }

// settings are the flags that give a cluster's settings, each with the setting's place in what the API takes.
var settings = []setting{
	{"target-group", "target_group", "group of deployment targets that it serves"},
	{"min-agents", "min_agents", "with fewer online agents the cluster is critical"},
	{"desired-agents", "desired_agents", "with fewer online agents the cluster is degraded"},
	{"max-agents", "max_agents", "more agents are refused (default 1000, at most 5000)"},
	{"replication-mode", "replication_mode", "active_active, active_passive or sharded (default active_active)"},
	{"selection-strategy", "selection_strategy",
		"how a failover's target is picked: standby, least_loaded, round_robin or affinity (default least_loaded)"},
	{"role-lease", "role_lease", "how long a leader or shard owner may go on without hearing from its hub (default 3s)"},
	{"election-interval", "election_interval",
		"the longest between two looks at a leader or shard owner (default a third of the role lease)"},
	{"manual-election", "manual_election", "a leader that was lost keeps its seat until it is back, or a person acts"},
	{"task-max-attempts", "task_defaults.max_attempts",
		"attempts of its tasks that may fail, where a task does not say (default 3)"},
	{"task-max-transfers", "task_defaults.max_transfers",
		"agents that its tasks may be lost with, where a task does not say (default 3)"},
	{"task-expires-in", "task_defaults.expires_in",
		"how long its tasks may wait for an agent, where a task does not say (default 1h)"},
	{"task-stop-grace", "task_defaults.stop_grace",
		"how long the work of its tasks has to end once asked to, where a task does not say (default 30s for commands, " +
			"5s for other work)"},
	{"task-disconnect-grace", "task_defaults.disconnect_grace",
		"how long the agent of an at_most_once or unmarked task may be out of touch, where a task does not say (default " +
			"30s)"},
	{"task-retry-safety", "task_defaults.retry_safety",
		"when its tasks may run again after their agent was lost, where a task does not say: idempotent (the default), " +
			"fenced, at_most_once or unmarked"},
	{"task-transfer-timeout", "task_transfer_timeout", "how long a failover watches the tasks that it moves (default 5m)"},
	{"dead-letter-retention", "dead_letter_retention",
		"how long a dead letter of its tasks is kept for a retry (default 168h)"},
	{"brake-share", "brake.share",
		"the brake holds failovers when more than this share of the agents vanishes at once; 1 turns it off (default 0.5)"},
	{"brake-min-lost", "brake.min_lost",
		"the brake holds failovers when at least so many agents vanish at once, if they are also more than the share " +
			"(default 3)"},
	{"brake-window", "brake.window", "what the brake takes for at once (default 10s)"},
	{"healing", "self_healing.mode",
		"what the healing cycle may do: on, dry_run (decide and record only) or off (default on)"},
	{"healing-interval", "self_healing.cycle_interval",
		"time between two looks of the healing cycle, 5s to 1h (default 1m)"},
	{"healing-patience", "self_healing.patience", "how long something must be wrong before healing acts (default 30s)"},
	{"tenants", "tenants", "only tokens of these tenants, and of none, may use the cluster; \"\": all (default all)"},
	{"tenant-weight", "tenant_weights",
		"a tenant's share while work of several waits, as tenant=weight, 0.1 to 100 (default 1 each); may be repeated"},
	{"scaling", "scaling.mode",
		"off, manual (as many agents as desired are kept) or auto (rules move the number between min and max) (default off)"},
	{"queue-measure", "scaling.queue_measure", "what the queue thresholds count: total or per_agent (default total)"},
	{"scale-up-queue", "scaling.scale_up.queue_threshold", "start agents when more tasks than this wait (default 5)"},
	{"scale-up-cpu", "scaling.scale_up.cpu_threshold",
		"start agents when none is idle and their machines' cpu is busier than this, in percent; 100: never (default 80)"},
	{"scale-up-cooldown", "scaling.scale_up.cooldown", "least time from one start of agents to the next (default 1m)"},
	{"scale-up-increment", "scaling.scale_up.increment", "agents started at a time (default 1)"},
	{"scale-down-queue", "scaling.scale_down.queue_threshold", "stop agents when fewer tasks than this wait (default 1)"},
	{"scale-down-idle", "scaling.scale_down.idle_timeout",
		"stop only agents that had nothing to do for so long (default 5m)"},
	{"scale-down-cooldown", "scaling.scale_down.cooldown",
		"least time from the last start or stop of agents to a stop (default 5m)"},
	{"scale-down-decrement", "scaling.scale_down.decrement", "agents stopped at a time (default 1)"},
	{"spawner", "scaling.spawn.spawner", "name of the spawner that starts agents (default: any)"},
	{"platform", "scaling.spawn.platform",
		"where started agents run: process, docker, kubernetes, coolify or ec2 (default: the named spawner's, else process)"},
	{"fallback-platform", "scaling.spawn.fallback_platforms",
		"platform to try where none before it takes the agents; may be repeated"},
	{"image", "scaling.spawn.image", "container image of started agents (default: the spawner's)"},
	{"docker-pull", "scaling.spawn.docker.pull",
		"when the engine fetches the image: missing, always or never (default missing)"},
	{"docker-pids-limit", "scaling.spawn.docker.pids_limit",
		"processes and threads of a container, at most (default 1000)"},
	{"docker-writable-root", "scaling.spawn.docker.writable_root", "let containers write to the image's files"},
	{"spawn-slots", "scaling.spawn.slots", "tasks that a started agent runs at a time (default: as the spawner has it)"},
	{"spawn-capability", "scaling.spawn.capabilities", "what started agents can do; may be repeated"},
	{"spawn-cpu", "scaling.spawn.resources.cpu", "cores of a started agent, as 2 or 500m"},
	{"spawn-memory", "scaling.spawn.resources.memory", "memory of a started agent, as 4Gi"},
	{"spawn-storage", "scaling.spawn.resources.storage", "storage of a started agent, as 10Gi"},
	{"spawn-env", "scaling.spawn.environment",
		"variable of a started agent's environment, as NAME=value; no place for secrets; may be repeated"},
	{"spawn-join-timeout", "scaling.spawn.join_timeout", "how long a started agent may take to come online (default 1m)"},
	{"spawn-drain-timeout", "scaling.spawn.drain_timeout",
		"how long an agent that is to stop may finish its work (default 5m)"},
	{"spawn-backoff", "scaling.spawn.backoff.strategy",
		"how tries are spaced while agents cannot be started: constant or exponential (default exponential)"},
	{"spawn-backoff-delay", "scaling.spawn.backoff.delay",
		"wait after agents could not be started for the first time (default 10s)"},
	{"spawn-backoff-max", "scaling.spawn.backoff.max_delay", "longest wait between tries to start agents (default 5m)"},
	{"shards", "shards", "shards of a sharded cluster, fixed from then on (default 16)"},
}

// addClusterFlags adds a flag for each setting, of its type and held to its bounds; a cluster keeps its shards.
func addClusterFlags(flags *pflag.FlagSet, creates bool) {
	for _, s := range settings {
		field, found := api.FieldAt(reflect.TypeFor[api.ClusterConfig](), s.path)
		if !found {
			panic("there is no setting " + s.path) //nolint:forbidigo // a mistake that every start finds
		}
		t := field.Type
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case s.flag == "shards" && !creates:
			continue
		case t == reflect.TypeFor[api.Duration]():
			flags.Duration(s.flag, 0, s.usage)
		case t.Kind() == reflect.Int:
			flags.Int(s.flag, 0, s.usage)
		case t.Kind() == reflect.Float64:
			flags.Float64(s.flag, 0, s.usage)
		case t.Kind() == reflect.Bool:
			flags.Bool(s.flag, false, s.usage)
		case t.Kind() == reflect.String:
			flags.String(s.flag, "", s.usage)
		case s.flag == "tenants": // no name of a tenant has a comma
			flags.StringSlice(s.flag, nil, s.usage)
		default:
			flags.StringArray(s.flag, nil, s.usage)
		}
		app.Bounded[api.ClusterConfig](flags, map[string]string{s.flag: s.path})
	}
	app.MayBeEmpty(flags, "target-group", "spawner", "image", "spawn-cpu", "spawn-memory", "spawn-storage") // clears it
}

// settingsGiven are the settings of the flags that were given, in the form of the API.
func settingsGiven(flags *pflag.FlagSet) (given map[string]any, err error) {
	given = map[string]any{}
	flags.Visit(func(flag *pflag.Flag) {
		i := slices.IndexFunc(settings, func(s setting) bool { return s.flag == flag.Name })
		if i < 0 || err != nil {
			return
		}
		at, names := given, strings.Split(settings[i].path, ".")
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
	return given, err
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
		if err != nil || api.ValidateID("tenant", tenant) != nil {
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
