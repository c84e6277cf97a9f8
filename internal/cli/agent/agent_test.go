package agent

import (
	"github.com/spf13/cobra"

	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	clitest.Main(m, clitest.Root(Command, ConformCommand, FailoverCommand, DrainCommand, func(a *app.App) *cobra.Command {
		clusters := &cobra.Command{Use: "cluster"}
		a.ServerFlag(clusters)
		clusters.AddCommand(ClusterCommands(a)...)
		return clusters
	}))
}

func TestAgentTable(t *testing.T) {
	t.Parallel()
	url, _ := clitest.Answering(t, 200, "application/json", `{"agents": [
		{"id": "build-1", "cluster": "default", "status": "online", "role": "member", "epoch": 3, "max_tasks": 4, "running": 2, "host": "h\u001b[2J1", "pid": 77, "cpu_percent": 12.4, "last_heartbeat": "2026-11-21T11:59:58Z"},
		{"id": "a", "cluster": "other", "status": "offline", "role": "member", "epoch": 12, "max_tasks": 1}]}`)
	got := clitest.Run(t.Context(), "", "agent", "list", "--server", url)
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, `AGENT    CLUSTER  STATUS   HEALTH  ROLE    TASKS  EPOCH  CPU  HOST  PID  LAST HEARTBEAT
build-1  default  online   -       member  2/4    3      12%  h1    77   2.0s ago
a        other    offline  -       member  ?/1    12     -    -     -
`, got.Stdout)
}
