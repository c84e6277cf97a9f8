package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/cli/app"
)

func TestWaitingTasksSayWhy(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, map[string]answer{
		"GET /api/v1/agents/tasks/queue":             {200, `{"tasks":[{"id":"t-1","type":"resize","cluster":"c","priority_name":"normal","status":"retry_wait","why":"no agent handles it; agent a handles echo"}]}`},
		"GET /api/v1/agents/tasks/queue/dead-letter": {200, `{"tasks":[]}`},
	})
	got := f.at(t, "task", "queue")
	require.Equal(t, app.ExitOK, got.code, got.stderr)
	require.Equal(t, strings.TrimLeft(`
TASK  TYPE    CLUSTER  PRIORITY  STATUS      AGENT  SUBMITTED  WHY
t-1   resize  c        normal    retry_wait  -      -          no agent handles it; agent a handles echo
`, "\n"), got.stdout)
	require.Equal(t, "There are no such tasks.\n", f.at(t, "task", "dead-letters").stdout)
}
