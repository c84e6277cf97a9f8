package process

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/api"

	"github.com/stretchr/testify/require"
)

// devReport is what tests read of what `dev` reports when all is up.
type devReport struct {
	URL      string `json:"url"`
	UIURL    string `json:"ui_url"`
	Temporal string `json:"temporal_address"`
	KeyFile  string `json:"temporal_key_file"`
	Agents   []struct {
		ID  string `json:"id"`
		PID int    `json:"pid"`
	} `json:"agents"`
}

// startDev runs `dev` on a data directory and waits until it reports. Whatever it leaves is killed with the test.
func startDev(t *testing.T, dir, address string, more ...string) (*program, devReport) {
	t.Helper()
	return startDevIn(t, nil, dir, address, more...)
}

// startDevIn is startDev with variables in its environment.
func startDevIn(t *testing.T, env []string, dir, address string, more ...string) (*program, devReport) {
	t.Helper()
	p := start(t, env, append(devArgs(dir, address), more...)...)
	t.Cleanup(func() { killAgents(dir) })
	var report devReport
	require.Eventually(t, func() bool { return json.Unmarshal([]byte(p.stdout.String()), &report) == nil }, patience,
		20*time.Millisecond, "%s", &p.stderr)
	return p, report
}

func devArgs(dir, address string) []string {
	return []string{"dev", "--data-dir", dir, "--http", address, "--temporal", "127.0.0.1:0", "--ui", "off", "--slots",
		"4", "-o", "json"}
}

// killAgents ends the agents that a killed `dev` left.
func killAgents(dir string) {
	data, err := os.ReadFile(filepath.Join(dir, "agents.json"))
	if err != nil {
		return
	}
	var records map[string]struct{ PID int }
	_ = json.Unmarshal(data, &records)
	for _, r := range records {
		_ = syscall.Kill(r.PID, syscall.SIGKILL)
	}
}

// TestKilledDevLosesNothing kills everything but the agents with 200 tasks acknowledged and half of them done.
func TestKilledDevLosesNothing(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	const tasks = 200
	dir, address := t.TempDir(), freeAddress(t)
	ledger := filepath.Join(dir, "ledger")
	p, first := startDev(t, dir, address)
	require.Len(t, first.Agents, 3)
	batch := make([]map[string]any, tasks)
	for i := range batch {
		command := []string{"sh", "-c", `echo "$1" >> "$2"; sleep 0.2`, "sh", strconv.Itoa(i), ledger}
		batch[i] = map[string]any{"type": "exec", "cluster": "default", "payload": map[string]any{"command": command}}
	}
	var accepted struct{ Tasks []task }
	call(t, http.StatusAccepted, http.MethodPost, first.URL+"/api/v1/agents/tasks/batch", batch, &accepted)
	require.Len(t, accepted.Tasks, tasks)
	require.Eventually(t, func() bool { return len(lines(ledger)) >= tasks/2 }, patience, 5*time.Millisecond)

	p.signal(t, syscall.SIGKILL)
	require.Equal(t, -1, p.exit(t))
	require.Less(t, len(lines(ledger)), tasks, "it must be killed in the middle")
	p, second := startDev(t, dir, address)
	require.Equal(t, first.Agents, second.Agents, "the agents must be adopted, not started anew")

	for _, submitted := range accepted.Tasks {
		// What was on its way from Temporal to an agent at that moment waits for the backstop of a minute.
		done := completed(t, second.URL, submitted.ID, 2*api.AttemptBackstop)
		results := 0
		for _, a := range done.Attempts {
			if a.Outcome == api.AttemptCompleted {
				results++
			}
		}
		require.Equal(t, 1, results, "%+v", done.Attempts)
	}
	times := map[string]int{}
	for _, line := range lines(ledger) {
		times[line]++
	}
	require.Len(t, times, tasks, "every task must have run")
	for line, n := range times {
		require.Equal(t, 1, n, "task %s ran again although its agent lived", line)
	}

	p.signal(t, syscall.SIGINT)
	require.Equal(t, 0, p.exit(t))
	for _, a := range second.Agents {
		require.False(t, alive(a.PID), "%s is still there", a.ID)
	}
}

func lines(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

func TestDevStopsCleanly(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]syscall.Signal{"Ctrl-C": syscall.SIGINT, "SIGTERM": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p, report := startDev(t, dir, "127.0.0.1:0")
			fails(t, nil, 1, []string{"the data directory is in use by another process", "--data-dir"},
				devArgs(dir, "127.0.0.1:0")...)
			for _, a := range report.Agents {
				require.True(t, alive(a.PID), "the refused one must not touch %s", a.ID)
			}
			p.signal(t, s)
			require.Equal(t, 0, p.exit(t), "%s", &p.stderr)
			for _, a := range report.Agents {
				require.False(t, alive(a.PID), "%s is still there", a.ID)
			}
			require.NoFileExists(t, filepath.Join(dir, "agents.json"))
		})
	}
}

// TestKilledDevAgentIsReplaced kills one agent: another process with the same id takes its place.
func TestKilledDevAgentIsReplaced(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	p, report := startDev(t, t.TempDir(), "127.0.0.1:0")
	victim := report.Agents[0]
	require.NoError(t, syscall.Kill(victim.PID, syscall.SIGKILL))
	p.says(t, fmt.Sprintf("%s (pid %d) was ended by SIGKILL", victim.ID, victim.PID))
	require.Eventually(t, func() bool { pid := online(t, report.URL, victim.ID); return pid != victim.PID }, patience,
		100*time.Millisecond)
}

func TestDevRefusesToStart(t *testing.T) {
	t.Parallel()
	other := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(other, "server-version"), []byte("0.0.1\n"), 0o600))
	old := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(old, "workflows-version"), []byte("0\n"), 0o600))
	busy := busyAddress(t)
	for name, c := range map[string]struct {
		args  []string
		dir   string
		texts []string
	}{
		"busy REST API": {[]string{"--http", busy}, t.TempDir(),
			[]string{"the REST API cannot listen on " + busy, "choose another address with --http"}},
		"busy Temporal": {[]string{"--temporal", busy}, t.TempDir(),
			[]string{"Temporal cannot listen on " + busy, "choose another address with --temporal"}},
		"busy Web UI": {[]string{"--ui", busy}, t.TempDir(),
			[]string{"the Web UI cannot listen on " + busy, "choose another address with --ui"}},
		"old workflows": {nil, old, []string{"was written by another version", "--data-dir", "--accept-old-data"}},
		"another version": {nil, other, []string{"was written by Temporal 0.0.1",
			"choose another directory with --data-dir"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fails(t, nil, 1, c.texts, append(devArgs(c.dir, "127.0.0.1:0"), c.args...)...)
			require.NoFileExists(t, filepath.Join(c.dir, "agents.json"), "no agent may have been started")
			require.NoFileExists(t, filepath.Join(c.dir, "temporal.db"))
		})
	}
}
