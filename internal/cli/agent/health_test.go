package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

const failingHealth = `{"agent_id":"a-1","cluster":"c","status":"online","level":"healthy","score":0.9,
"factors":[{"name":"task_completion","score":1,"weight":0.25,"why":"it finishes what it takes"},{"name":"error_rate","score":0,"weight":0.1,"why":"1 of 1 finished attempts failed"}],
"checks":[{"name":"cpu","status":"warn","why":"85% in use"}]}`

func TestHealthCommands(t *testing.T) {
	t.Parallel()
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"GET /api/v1/agents/a-1/health": {Status: 200, Body: failingHealth},
		"GET /api/v1/agents/clusters/c/health": {Status: 200, Body: `{"cluster":"c","status":"degraded","score":0.45,"agents":[` + failingHealth + `,
{"agent_id":"a-2","cluster":"c","status":"offline","level":"failed","score":0,"why":"not connected: its connection closed"}]}`},
	})
	for command, want := range map[string]string{
		"agent health a-1": `
Agent    a-1
Cluster  c
Status   online
Health   healthy
Score    0.90

FACTOR           SCORE  WEIGHT  WHY
task_completion  1.00   0.25    it finishes what it takes
error_rate       0.00   0.1     1 of 1 finished attempts failed

CHECK  STATUS  WHY
cpu    warn    85% in use
`,
		"cluster health c": `
Cluster c is degraded; score 0.45

AGENT  STATUS   HEALTH   SCORE  WHY
a-1    online   healthy  0.90   1 of 1 finished attempts failed
a-2    offline  failed   0.00   not connected: its connection closed
`,
	} {
		got := f.At(t, strings.Fields(command)...)
		require.Equal(t, app.ExitOK, got.Code, got.Stderr)
		require.Equal(t, strings.TrimLeft(want, "\n"), got.Stdout)
	}
}
