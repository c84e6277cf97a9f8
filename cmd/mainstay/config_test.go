package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/cli/app"
)

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	good := configFile(t, "clusters: [{name: a}]\nagent_cluster: {name: b}")
	got := run(t.Context(), "", "config", "check", good)
	require.Equal(t, app.ExitOK, got.code, got.stderr)
	require.Equal(t, good+" is good; it describes the clusters a, b.\n", got.stdout)

	bad := configFile(t, "hub:\n  heartbeet_interval: 5s\n  park: 5\n")
	got = run(t.Context(), "", "config", "check", good, bad)
	require.Equal(t, app.ExitUsage, got.code)
	require.Contains(t, got.stderr, bad+":2: hub.heartbeet_interval: is no known key; did you mean heartbeat_interval?\n")
	require.Contains(t, got.stderr, bad+`:3: hub.park: must be a duration like "30s"`)
	require.Contains(t, got.stderr, "1 of 2 files cannot be used")
	got = run(t.Context(), "", "config", "check", bad, "-o", "json")
	require.Contains(t, got.stdout, `"valid": false`)
	require.Equal(t, app.ExitUsage, run(t.Context(), "", "config", "check").code)
}

func TestConfigPrint(t *testing.T) {
	t.Parallel()
	file := configFile(t, "hub:\n  park: 3s\n")
	got := run(t.Context(), "", "config", "print", "--config", file, "--http", ":9", "--changed")
	require.Equal(t, app.ExitOK, got.code, got.stderr)
	require.Equal(t, strings.TrimLeft(`
SETTING      VALUE  SOURCE  FROM
http.listen  :9     flag    --http
hub.park     3s     file    `+file+`:2
`, "\n"), got.stdout)
	got = run(t.Context(), "", "config", "print", "--config", file, "--http", "8080")
	require.Equal(t, app.ExitUsage, got.code)
	require.Contains(t, got.stderr, "--http: must be host:port")
	require.Equal(t, "Every setting has its default.\n", run(t.Context(), "", "config", "print", "--changed").stdout)
	var printed struct{ Settings []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(run(t.Context(), "", "config", "print", "-o", "json").stdout), &printed))
	require.Contains(t, printed.Settings, map[string]any{"key": "hub.park", "value": "2s", "source": "default"})
}
