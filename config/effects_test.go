package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"mainstay.dev/mainstay/fleet"
)

// effect is what a configuration makes the parts do, as they are handed it.
type effect struct {
	Clusters []fleet.ClusterConfig
	Timing   fleet.Timing
	Hub      Hub
}

func effectOf(t *testing.T, text string) effect {
	t.Helper()
	c, err := Parse("f.yaml", []byte(text))
	require.NoError(t, err, text)
	return effect{c.ClusterConfigs(), c.Timing(), c.Hub}
}

// others are values that differ from the defaults, for the keys of a cluster whose type does not say what is allowed.
var others = map[string]string{
	"tenants": "[acme]",
	"name":    "other", "target_group_id": "racks", "replication_mode": "active_passive", "selection_strategy": "standby",
	"minimum_agents": "1", "share": "0.7", "tenant_weights": "{acme: 5}", "election_interval": "2s",
	"warning_threshold": "12s", "retry_safety": "fenced",
	"heartbeat_interval": "4s", "failure_threshold": "77s", "enabled": "false", "mode": "dry_run", "stuck_after": "20m", "replace_after": "21m",
	"recover_by": "restart",
}

// TestEveryKeyOfAClusterHasAnEffect sets each key of agent_cluster by itself and sees that what the parts are handed
// changes: no key is only read.
func TestEveryKeyOfAClusterHasAnEffect(t *testing.T) {
	t.Parallel()
	base := effectOf(t, "agent_cluster: {name: c}")
	leaves := 0
	eachLeaf("", reflect.TypeFor[AgentCluster](), func(path string, of reflect.Type) {
		if strings.HasPrefix(path, "scaling.") {
			return // tested beside the parts that they are handed to
		}
		leaves++
		section, name := "", path
		if i := strings.LastIndexByte(path, '.'); i >= 0 {
			section, name = path[:i], path[i+1:]
		}
		value, known := others[name]
		if !known {
			switch of {
			case reflect.TypeFor[fleet.Duration]():
				value = "47s"
			case reflect.TypeFor[int]():
				value = "7"
			default:
				t.Fatalf("name a value for %s that is not its default, in others", path)
			}
		}
		text := "agent_cluster:\n  name: c\n"
		if path == "name" {
			text = "agent_cluster:\n"
		}
		indent := "  "
		for part := range strings.SplitSeq(section, ".") {
			if part != "" {
				text += indent + part + ":\n"
				indent += "  "
			}
		}
		got := effectOf(t, text+indent+name+": "+value)
		require.NotEqual(t, base, got, "%s is read and not used", path)
	})
	require.Greater(t, leaves, 20)
}

// eachLeaf calls do for every key below a section.
func eachLeaf(at string, section reflect.Type, do func(path string, of reflect.Type)) {
	for _, field := range keys(section) {
		path := strings.TrimPrefix(at+"."+field.Tag.Get("yaml"), ".")
		of := field.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct {
			eachLeaf(path, of, do)
			continue
		}
		do(path, of)
	}
}

// TestEveryKeyOfTheDocumentHasAnEffect changes a whole agent_cluster section key by key: some part gets each value.
func TestEveryKeyOfTheDocumentHasAnEffect(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/agent_cluster.yaml")
	require.NoError(t, err)
	whole := effectOf(t, string(text))
	var tree map[string]map[string]any
	require.NoError(t, yaml.Unmarshal(text, &tree))
	removed := 0
	var without func(at string, section map[string]any)
	without = func(at string, section map[string]any) {
		for key, value := range section {
			if inner, ok := value.(map[string]any); ok {
				without(at+key+".", inner)
				continue
			}
			delete(section, key)
			left, err := yaml.Marshal(tree)
			require.NoError(t, err)
			section[key] = value
			removed++
			switch at + key {
			case "name": // cannot be left out
				_, err := Parse("f.yaml", left)
				require.ErrorContains(t, err, "agent_cluster.name")
			case "replication_mode", "failover.selection_strategy", "failover.task_transfer_timeout",
				"health_monitoring.warning_threshold", // two heartbeat intervals
				"failover.max_transfer_retries",
				"task_queue.max_delivery_attempts", "task_queue.default_expiration", "task_queue.dead_letter_retention",
				"self_healing.enabled", "self_healing.cycle_interval", "self_healing.drain_timeout", "leader_election.enabled":
				require.Equal(t, whole, effectOf(t, string(left)), "%s of the section is our default", at+key)
			default:
				if c, err := Parse("f.yaml", left); err == nil {
					require.NotEqual(t, whole, effect{c.ClusterConfigs(), c.Timing(), c.Hub}, "without %s", at+key)
				} else {
					require.ErrorContains(t, err, "must be longer than", "%s is compared with others", at+key)
				}
			}
		}
	}
	without("", tree["agent_cluster"])
	require.Equal(t, 22, removed, fmt.Sprint(tree))
}
