package cluster

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
	"mainstay.dev/sdk/api"
)

// shown is a cluster as the API shows it.
func shown(t *testing.T, config api.ClusterConfig) clitest.Answer {
	t.Helper()
	text, err := json.Marshal(config.WithDefaults())
	require.NoError(t, err)
	shown := map[string]any{}
	require.NoError(t, json.Unmarshal(text, &shown))
	shown["revision"], shown["status"], shown["agent_count"] = config.Revision(), "healthy", 3
	text, err = json.Marshal(shown)
	require.NoError(t, err)
	return clitest.Answer{Status: 200, Body: string(text)}
}

func TestClusterApply(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/agents/clusters/"
	file := clitest.ConfigFile(t, `clusters:
- {name: same, membership: {minimum_agents: 2}}
- {name: changed, membership: {minimum_agents: 2}, tenant_weights: {acme: 5}}
- {name: new}`)
	for _, dryRun := range []bool{true, false} {
		f := clitest.NewAPI(t, map[string]clitest.Answer{
			"GET " + path + "same":                 shown(t, api.ClusterConfig{Name: "same", MinAgents: 2}),
			"GET " + path + "changed":              shown(t, api.ClusterConfig{Name: "changed", MaxAgents: 9}),
			"PUT " + path + "changed":              {Status: 200, Body: "{}"},
			"POST " + strings.TrimRight(path, "/"): {Status: 201, Body: "{}"},
		})
		args := []string{"cluster", "apply", file}
		if dryRun {
			args = append(args, "--dry-run")
		}
		got := f.At(t, args...)
		require.Equal(t, app.ExitOK, got.Code, got.Stderr)
		require.Equal(t, strings.TrimLeft(`
CLUSTER  ACTION     SETTING         FROM    TO
same     unchanged  -               -
changed  changed    max_agents      9       1000
-        -          min_agents      (none)  2
-        -          tenant_weights  (none)  {"acme":5}
new      created    -               -
`, "\n"), got.Stdout)
		var writes []clitest.Request
		for _, r := range f.Requests {
			if r.Method != http.MethodGet {
				writes = append(writes, r)
			}
		}
		if dryRun {
			require.Empty(t, writes)
			continue
		}
		require.Len(t, writes, 2)
		require.Contains(t, writes[0].Body, `"min_agents":2`)
		require.NotContains(t, writes[0].Body, `"name"`, "the path has it")
		require.Contains(t, writes[1].Body, `"name":"new"`)
	}
	got := clitest.Run(t.Context(), "", "cluster", "apply", clitest.ConfigFile(t, "http: {}"))
	require.Equal(t, app.ExitUsage, got.Code)
	require.Contains(t, got.Stderr, "describes no clusters")
}

// TestSettingsOfClustersAreShown holds the names of settings together: the API must show each of fleet's.
func TestSettingsOfClustersAreShown(t *testing.T) {
	t.Parallel()
	names := func(of reflect.Type) map[string]bool {
		found := map[string]bool{}
		for _, field := range reflect.VisibleFields(of) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			found[name] = true
		}
		return found
	}
	shown := names(reflect.TypeFor[api.Cluster]())
	for name := range names(reflect.TypeFor[api.ClusterConfig]()) {
		require.True(t, shown[name], "%s of fleet.ClusterConfig is not in api.Cluster", name)
	}
}

func TestIfRevision(t *testing.T) {
	t.Parallel()
	var sent []string
	server := clitest.Recorder(t, func(r *http.Request) { sent = append(sent, r.Header.Get("If-Match")) },
		clitest.Problem(412, "precondition_failed", "the settings were changed"))
	for _, args := range [][]string{
		{"cluster", "update", "x", "--min-agents", "1", "--if-revision", "abc"},
		{"cluster", "delete", "x", "--if-revision", `"abc"`}, {"cluster", "delete", "x"},
	} {
		got := clitest.Run(t.Context(), "", append(args, "--server", server)...)
		require.Equal(t, app.ExitConflict, got.Code)
		require.Contains(t, got.Stderr, "the settings were changed (precondition_failed)")
	}
	require.Equal(t, []string{`"abc"`, `"abc"`, ""}, sent)
}
