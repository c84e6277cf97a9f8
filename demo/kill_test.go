package demo

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/fleet"
)

func TestBusiest(t *testing.T) {
	t.Parallel()
	agent := func(id string, status fleet.AgentStatus, running int) api.Agent {
		a := api.Agent{ID: id, Status: status}
		if running >= 0 {
			a.Running = &running
		}
		return a
	}
	require.Nil(t, busiest(nil))
	require.Nil(t, busiest([]api.Agent{agent("a", fleet.AgentOffline, 4)}))
	require.Equal(t, "a", busiest([]api.Agent{agent("a", fleet.AgentOnline, -1)}).ID)
	require.Equal(t, "c", busiest([]api.Agent{agent("a", fleet.AgentOnline, -1), agent("b", fleet.AgentOffline, 4),
		agent("c", fleet.AgentOnline, 2), agent("d", fleet.AgentOnline, 2)}).ID)
}

func TestDemoKillTimeline(t *testing.T) {
	t.Parallel()
	killed := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	attempt := func(agent string, outcome fleet.AttemptOutcome, began, ended time.Duration) fleet.Attempt {
		from, to := killed.Add(began), killed.Add(ended)
		return fleet.Attempt{AgentID: agent, Outcome: outcome, StartedAt: &from, EndedAt: &to}
	}
	const ms = time.Millisecond
	noticed := 1010 * ms
	before := &api.Task{Attempts: []fleet.Attempt{attempt("agent-1", fleet.AttemptCompleted, -50*ms, -10*ms)}}
	lost := attempt("agent-1", fleet.AttemptLost, -20*ms, noticed)
	moved := &api.Task{Attempts: []fleet.Attempt{lost, attempt("agent-3", fleet.AttemptCompleted, 1200*ms, 1300*ms)}}
	movedLater := &api.Task{Attempts: []fleet.Attempt{lost, attempt("agent-2", fleet.AttemptFailed, 1100*ms, 1110*ms),
		attempt("agent-2", fleet.AttemptCompleted, 1400*ms, 1500*ms)}}
	waited := &api.Task{Attempts: []fleet.Attempt{attempt("agent-2", fleet.AttemptCompleted, 1050*ms, 1060*ms)}}
	for name, c := range map[string]struct {
		tasks []*api.Task
		wants string
	}{
		"two tasks": {[]*api.Task{before, movedLater, waited, moved}, `
+0.00 s  killed   agent-1 (pid 7) by SIGKILL, with 4 of 10 tasks done
+1.01 s  noticed  its connection closed
+1.20 s  moved    2 tasks under way on agent-1 to agent-2 and agent-3, after 1 that waited already
+1.50 s  done     the last of them
`},
		"one task": {[]*api.Task{before, moved}, `
+0.00 s  killed   agent-1 (pid 7) by SIGKILL, with 4 of 10 tasks done
+1.01 s  noticed  its connection closed
+1.20 s  moved    1 task under way on agent-1 to agent-3
+1.30 s  done     it
`},
		"nothing under way": {[]*api.Task{before, waited}, `
+0.00 s  killed   agent-1 (pid 7) by SIGKILL, with 4 of 10 tasks done
+1.01 s  noticed  its connection closed
-        moved    nothing: it had no task under way at that moment
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &demoKill{Agent: "agent-1", PID: 7, At: killed, Done: 4, Reason: "its connection closed"}
			k.take(c.tasks, killed.Add(noticed))
			var out bytes.Buffer
			require.NoError(t, k.write(&out, 10))
			require.Equal(t, c.wants[1:], out.String())
		})
	}
	var out bytes.Buffer
	require.NoError(t, (*demoKill)(nil).write(&out, 1))
	require.Contains(t, out.String(), "No agent was killed")
}

func TestProgressTellsBetween(t *testing.T) {
	t.Parallel()
	for tty, wants := range map[bool]string{
		false: "between\n1 of 2 tasks\n",
		true:  "\r\x1b[Kbetween\n\r[........................................] 0 of 2 tasks\r[####################....................] 1 of 2 tasks",
	} {
		var out bytes.Buffer
		p := &app.Progress{To: &out, TTY: tty, Unit: "tasks", Total: 2}
		p.Tell("between")
		require.Equal(t, 1, p.Step())
		require.Equal(t, wants, out.String())
	}
}
