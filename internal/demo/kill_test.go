package demo

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestBusiest(t *testing.T) {
	t.Parallel()
	agent := func(id string, status api.AgentStatus, running int) api.Agent {
		a := api.Agent{ID: id, Status: status}
		if running >= 0 {
			a.Running = &running
		}
		return a
	}
	require.Nil(t, busiest(nil))
	require.Nil(t, busiest([]api.Agent{agent("a", api.AgentOffline, 4)}))
	require.Equal(t, "a", busiest([]api.Agent{agent("a", api.AgentOnline, -1)}).ID)
	require.Equal(t, "c", busiest([]api.Agent{agent("a", api.AgentOnline, -1), agent("b", api.AgentOffline, 4),
		agent("c", api.AgentOnline, 2), agent("d", api.AgentOnline, 2)}).ID)
}

func TestDemoKillTimeline(t *testing.T) {
	t.Parallel()
	killed := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	moved := killed.Add(1200 * time.Millisecond)
	for name, c := range map[string]struct {
		bundles int
		wants   string
	}{
		"two bundles": {2, `
+0.00 s  killed   agent-1 (pid 7) by SIGKILL, with 4 of 10 elements done
+1.01 s  noticed  its connection closed
+1.20 s  moved    2 bundles under way on agent-1: their elements go to the others, in smaller bundles
`},
		"nothing under way": {0, `
+0.00 s  killed   agent-1 (pid 7) by SIGKILL, with 4 of 10 elements done
+1.01 s  noticed  its connection closed
-        moved    nothing: it had no elements under way at that moment
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &demoKill{Agent: "agent-1", PID: 7, At: killed, Done: 4}
			k.take(&api.FailoverRecord{Reason: "its connection closed", NoticedAt: killed.Add(1010 * time.Millisecond),
				CompletedAt: &moved, Tasks: c.bundles})
			var out bytes.Buffer
			require.NoError(t, k.write(&out, 10))
			require.Equal(t, c.wants[1:], out.String())
		})
	}
	var out bytes.Buffer
	require.NoError(t, (*demoKill)(nil).write(&out, 1))
	require.Contains(t, out.String(), "No agent was killed")
}
