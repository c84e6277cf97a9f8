package controlplane

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, clitest.Root(ConfigCommand)) }

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	good := clitest.ConfigFile(t, "clusters: [{name: a}]\nagent_cluster: {name: b}")
	got := clitest.Run(t.Context(), "", "config", "check", good)
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, good+" is good; it describes the clusters a, b.\n", got.Stdout)

	bad := clitest.ConfigFile(t, "hub:\n  heartbeet_interval: 5s\n  park: 5\n")
	got = clitest.Run(t.Context(), "", "config", "check", good, bad)
	require.Equal(t, app.ExitUsage, got.Code)
	require.Contains(t, got.Stderr,
		bad+":2:3: hub.heartbeet_interval: is no known key; did you mean heartbeat_interval?\n")
	require.Contains(t, got.Stderr, bad+`:3:9: hub.park: is not a duration: write it like "30s"`)
	require.Contains(t, got.Stderr, "1 of 2 files cannot be used")
	got = clitest.Run(t.Context(), "", "config", "check", bad, "-o", "json")
	require.Contains(t, got.Stdout, `"valid": false`)
	require.Equal(t, app.ExitUsage, clitest.Run(t.Context(), "", "config", "check").Code)
}

func TestConfigPrint(t *testing.T) {
	t.Parallel()
	file := clitest.ConfigFile(t, "hub:\n  park: 3s\n")
	got := clitest.Run(t.Context(), "", "config", "print", "--config", file, "--http", ":9", "--changed")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, strings.TrimLeft(`
SETTING      VALUE  SOURCE  FROM
http.listen  :9     flag    --http
hub.park     3s     file    `+file+`:2
`, "\n"), got.Stdout)
	got = clitest.Run(t.Context(), "", "config", "print", "--config", file, "--http", "8080")
	require.Equal(t, app.ExitUsage, got.Code)
	require.Contains(t, got.Stderr, "--http: must be host:port")
	require.Equal(t, "Every setting has its default.\n", clitest.Run(t.Context(), "", "config", "print",
		"--changed").Stdout)
	var printed struct{ Settings []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(clitest.Run(t.Context(), "", "config", "print", "-o", "json").Stdout),
		&printed))
	require.Contains(t, printed.Settings, map[string]any{"key": "hub.park", "value": "2s", "source": "default"})
}
