package process

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"mainstay.dev/mainstay/testsuite/slow"

	"github.com/stretchr/testify/require"
)

var agentPID = regexp.MustCompile(`[a-z]+-[0-9a-f]+ \(pid (\d+)\)`)

// demoFolder is a folder with files to digest.
func demoFolder(t *testing.T, files int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%03d", i)), []byte(strings.Repeat("x", i)),
			0o600))
	}
	return dir
}

// requireNothingLeft checks that all agents that the demo named have ended, that no other works on its folder, and that
// its temporary folder is empty.
func requireNothingLeft(t *testing.T, p *program, folder, temporary string) {
	t.Helper()
	pids := agentPID.FindAllStringSubmatch(p.stdout.String(), -1)
	require.GreaterOrEqual(t, len(pids), 3, "%s", &p.stdout)
	for _, match := range pids {
		pid, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		require.False(t, alive(pid), "an agent is still there")
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range commands {
		command, err := os.ReadFile(path)
		require.False(t, err == nil && strings.Contains(string(command), folder), "%s is still there", path)
	}
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestDemoDigestsAFolder(t *testing.T) {
	t.Parallel()
	folder, temporary := demoFolder(t, 50), t.TempDir()
	p := start(t, []string{"TMPDIR=" + temporary}, "demo", "--path", folder)
	require.Equal(t, 0, p.exit(t), "%s", &p.stderr)
	require.Contains(t, p.stdout.String(), "EQUAL")
	require.Contains(t, p.stdout.String(), "50 elements with 50 files")
	requireNothingLeft(t, p, folder, temporary)
}

func TestDemoOfHealing(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	temporary := t.TempDir()
	p := start(t, []string{"TMPDIR=" + temporary}, "demo", "--scenario", "healing")
	require.Equal(t, 0, p.exit(t), "%s\n%s", &p.stdout, &p.stderr)
	story := p.stdout.String()
	for _, what := range []string{"hangs", "is given up: no heartbeat for", "failed over: ",
		"is degraded", "healing drains agent-", "drained: agent-", "drain_agent"} {
		require.Contains(t, story, what)
	}
	require.Equal(t, 2, strings.Count(story, "replaced: agent-"), "%s", story)
	for _, match := range regexp.MustCompile(`\(pid (\d+)\)`).FindAllStringSubmatch(story, -1) {
		pid, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		require.False(t, alive(pid), "an agent is still there")
	}
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	folder, temporary := demoFolder(t, 200), t.TempDir()
	p := start(t, []string{"TMPDIR=" + temporary}, "demo", "--path", folder)
	require.Eventually(t, func() bool { return strings.Contains(p.stdout.String(), "All is up after") }, patience, tick,
		"%s", &p.stderr)
	p.signal(t, syscall.SIGINT)
	require.NotEqual(t, 0, p.exit(t), "it did not finish")
	require.NotContains(t, p.stderr.String(), "goroutine ")
	requireNothingLeft(t, p, folder, temporary)
}
