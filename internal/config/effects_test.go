package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// effect is what a configuration makes the parts do, as they are handed it.
type effect struct {
	Clusters []api.ClusterConfig
	Timing   cluster.Timing
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
	"minimum_agents": "1", "share": "0.7", "tenant_weights": "{acme: 5}", "election_interval": "500ms",
	"lease_duration":    "6s",
	"warning_threshold": "12s", "retry_safety": "fenced",
	"heartbeat_interval": "4s", "failure_threshold": "77s", "enabled": "false", "mode": "dry_run",
	"stuck_after": "20m", "replace_after": "21m",
	"recover_by": "restart",
}

// TestEveryKeyOfAClusterReachesAPart sets each key of agent_cluster by itself and sees that what the parts are handed
// changes: no key is only read.
func TestEveryKeyOfAClusterReachesAPart(t *testing.T) {
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
			case reflect.TypeFor[api.Duration]():
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
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		path := strings.TrimPrefix(at+"."+name, ".")
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

// A hub gives up an agent that is silent for longer than its threshold, so a longer lease would be cut.
func TestLeaseThatHubsWouldCutIsRefused(t *testing.T) {
	t.Parallel()
	const lease = "clusters: [{name: c, leader_election: {lease_duration: 8s}}]\n"
	_, err := Parse("f.yaml", []byte(lease))
	require.EqualError(t, err, "f.yaml:1:40: clusters[0].leader_election.lease_duration: must not be longer than "+
		"hub.failure_threshold (7s), after which hubs give up a silent agent")
	_, err = Parse("f.yaml", []byte(lease+"hub: {failure_threshold: 8s}"))
	require.NoError(t, err)
	_, err = Parse("f.yaml", []byte("clusters: [{name: c}]\n"+
		"hub: {heartbeat_interval: 500ms, warning_threshold: 1s, failure_threshold: 2s}"))
	require.NoError(t, err, "the default lease")
}
