package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/agent"
)

func TestLedgerTellsWhatHandlersDo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	ledger, err := openLedger(path, "a1")
	require.NoError(t, err)
	defer func() { require.NoError(t, ledger.file.Close()) }()
	ledger.event(agent.Event{Kind: agent.EventReconnecting})
	ledger.event(agent.Event{Kind: agent.EventRegistered})
	_, err = ledger.handle(t.Context(), &agent.Task{ID: "t1", Attempt: 1, Payload: json.RawMessage(`{"run": "1ms"}`)})
	require.NoError(t, err)
	stopped, stop := context.WithCancelCause(t.Context())
	stop(agent.ErrStopping)
	_, err = ledger.handle(stopped, &agent.Task{ID: "t2", Attempt: 1, Payload: json.RawMessage(`{"run": "1h"}`)})
	require.ErrorIs(t, err, agent.ErrStopping, "else the agent would report the task as done")
	_, err = ledger.handle(t.Context(), &agent.Task{ID: "t3", Attempt: 1, Payload: json.RawMessage(`{}x`)})
	require.Error(t, err)

	r := ledgerReader{path: path}
	require.NoError(t, r.more())
	var story []string
	for _, e := range r.entries {
		require.Equal(t, "a1", e.Agent)
		require.Equal(t, os.Getpid(), e.PID)
		story = append(story, e.Event+" "+e.Task)
	}
	require.Equal(t, []string{"online ", "begin t1", "end t1", "begin t2", "stop t2", "begin t3"}, story)
}

func TestLedgerReaderWaitsForWholeLines(t *testing.T) {
	t.Parallel()
	r := ledgerReader{path: filepath.Join(t.TempDir(), "ledger")}
	require.NoError(t, r.more(), "nobody has written yet")
	file, err := os.Create(r.path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	_, err = file.WriteString(`{"event":"begin","task":"t1"}` + "\n" + `{"event":"be`)
	require.NoError(t, err)
	require.NoError(t, r.more())
	require.Len(t, r.entries, 1)
	_, err = file.WriteString(`gin","task":"t2"}` + "\n")
	require.NoError(t, err)
	require.NoError(t, r.more())
	require.Len(t, r.entries, 2)
	require.Equal(t, "t2", r.entries[1].Task)
	_, err = file.WriteString("garbage\n")
	require.NoError(t, err)
	require.Error(t, r.more())
}

func TestAwaitSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	r := ledgerReader{path: filepath.Join(t.TempDir(), "ledger")}
	err := r.await(t.Context(), "a miracle", time.Millisecond, func([]ledgerEntry) bool { return false })
	require.ErrorContains(t, err, "there is still no sign of a miracle in the ledger")
}

func TestRunning(t *testing.T) {
	t.Parallel()
	entries := []ledgerEntry{
		{Event: ledgerBegin, Agent: "a", PID: 1, Task: "killed"},
		{Event: ledgerBegin, Agent: "b", PID: 2, Task: "killed", Attempt: 2},
		{Event: ledgerBegin, Agent: "b", PID: 2, Task: "done"},
		{Event: ledgerEnd, Agent: "b", PID: 2, Task: "done"},
		{Event: ledgerBegin, Agent: "c", PID: 3, Task: "handed back"},
		{Event: ledgerStop, Agent: "c", PID: 3, Task: "handed back"},
	}
	by := running(entries, map[int]bool{1: true})
	require.Empty(t, by["a"])
	require.Len(t, by["b"], 1)
	require.Contains(t, by["b"], "killed")
	require.Empty(t, by["c"])
}

func TestReruns(t *testing.T) {
	t.Parallel()
	entries := []ledgerEntry{
		{Event: ledgerBegin, Task: "once"}, {Event: ledgerEnd, Task: "once"}, {Event: ledgerBegin, Task: "thrice"},
		{Event: ledgerBegin, Task: "thrice"},
		{Event: ledgerBegin, Task: "other"}, {Event: ledgerBegin, Task: "other"}, {Event: ledgerBegin, Task: "thrice"},
	}
	require.Equal(t, 2, reruns(entries, []string{"once", "thrice", "never"}))
	require.True(t, allBegun(entries, []string{"once", "thrice"}))
	require.False(t, allBegun(entries, []string{"once", "never"}))
}

func TestHandlerOfThroughputTellsItsBegin(t *testing.T) {
	t.Parallel()
	before := time.Now().UnixNano()
	result, err := handle(t.Context(), &agent.Task{})
	require.NoError(t, err)
	require.GreaterOrEqual(t, result, before)
}

func TestRowMeetsItsTarget(t *testing.T) {
	t.Parallel()
	fast, slow := time.Second, 3*time.Second
	for name, test := range map[string]struct {
		row faultRow
		met bool
	}{
		"within":           {faultRow{times: []time.Duration{fast, fast}, limit: 2 * time.Second, typical: fast}, true},
		"slow in the tail": {faultRow{times: []time.Duration{fast, slow}, limit: 2 * time.Second}, false},
		"slow median":      {faultRow{times: []time.Duration{slow, slow, slow}, typical: 2 * time.Second}, false},
		"twice":            {faultRow{times: []time.Duration{fast}, limit: slow, Twice: 1}, false},
		"run again":        {faultRow{Tasks: 9, Rerun: 1}, false},
		"lost":             {faultRow{Tasks: 9, Lost: 1}, false},
		"nothing lost":     {faultRow{Tasks: 9}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.row.sumUp()
			require.Equal(t, test.met, test.row.Met)
		})
	}
}

func TestWriteFailovers(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	rows := []faultRow{
		{Fault: "SIGKILL", Faults: 2, Target: "p99 ≤ 2 s", limit: 2 * time.Second,
			times: []time.Duration{time.Second, 1500 * time.Millisecond}},
		{Fault: "hub", Faults: 1, Tasks: 100, Rerun: 1},
	}
	for i := range rows {
		rows[i].sumUp()
	}
	writeFaults(&text, rows)
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	require.Len(t, lines, 4)
	require.Regexp(t,
		`\| SIGKILL +\| 2 +\| 1\.00 s \| 1\.50 s \| 1\.50 s \| 2 tasks moved, `+
			`0 overlapped +\| p99 ≤ 2 s \| yes \|`, lines[2])
	require.Regexp(t, `100 attempts in progress: 1 run again, 0 lost .* no +\|`, lines[3])
	for _, line := range lines {
		require.Equal(t, 9, strings.Count(line, "|"), line)
	}
}

func TestFaultsHaveNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"kill", "freeze", "stop", "kill-30ms", "kill-100ms", "flap", "healthy", "host", "both",
		"leader", "proof", "stop-leader", "hub", "temporal", "cut-off", "all"}, faultNames())
}

func TestPlanMeasuresOnlyWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	r := &run{App: &app.App{}, programs: programs{mainstay: "/no/such"}, dir: t.TempDir()}
	_, err := r.failover(t.Context(), &failoverPlan{only: []string{"leader"}})
	require.ErrorContains(t, err, "leader: start control-plane")
	rows, err := r.failover(t.Context(), &failoverPlan{only: []string{"none"}})
	require.NoError(t, err)
	require.Empty(t, rows)
}
