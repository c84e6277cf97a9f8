package demo

import (
	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/agentrun"

	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
	"mainstay.dev/mainstay/internal/demo/checksum"
)

func TestMain(m *testing.M) {
	clitest.Main(m, clitest.Root(Command, func(a *app.App) *cobra.Command {
		agents := &cobra.Command{Use: "agent"}
		agents.AddCommand(agentrun.Command(a))
		return agents
	}))
}

func TestDemo(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for i := range 20 {
		write(t, folder, fmt.Sprintf("dir/file-%02d", i), strings.Repeat("x", i))
	}
	got := clitest.Run(t.Context(), "", "demo", "--path", folder, "--agents", "2", "-o", "json")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	var report demoReport
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &report))
	require.Equal(t, 20, report.Files)
	require.Equal(t, 20, report.Elements)
	require.EqualValues(t, 190, report.Bytes)
	require.True(t, report.Equal)
	require.Equal(t, report.Local, report.Remote)
	require.NotNil(t, report.Killed, got.Stderr)
	require.Contains(t, []string{"agent-1", "agent-2"}, report.Killed.Agent)
	require.Greater(t, report.Killed.Noticed, demoDelay(0))
	require.Contains(t, got.Stderr, "Killed "+report.Killed.Agent)
	done := 0
	for _, share := range report.Agents {
		require.Contains(t, []string{"agent-1", "agent-2"}, share.Agent)
		done += share.Elements
	}
	require.Equal(t, 20, done)
	require.Contains(t, got.Stderr, "20 of 20 elements are done")
}

func write(t *testing.T, folder, path, text string) {
	t.Helper()
	full := filepath.Join(folder, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(t, os.WriteFile(full, []byte(text), 0o644))
}

func TestCombinedDigestKnowsNoOrder(t *testing.T) {
	t.Parallel()
	a, b := checksum.Sum{Path: "a", SHA256: "1", Bytes: 1}, checksum.Sum{Path: "b", SHA256: "2", Bytes: 1}
	require.Equal(t, checksum.Combined([]checksum.Sum{a, b}), checksum.Combined([]checksum.Sum{b, a}))
	require.NotEqual(t, checksum.Combined([]checksum.Sum{a, b}),
		checksum.Combined([]checksum.Sum{a, {Path: "b", SHA256: "3", Bytes: 1}}))
	require.NotEqual(t, checksum.Combined([]checksum.Sum{a, b}), checksum.Combined([]checksum.Sum{a}))
}

func TestDemoFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, path := range []string{"b", "a/c", "bin/x", ".mainstay/y", "a/.git/z"} {
		write(t, folder, path, "x")
	}
	require.NoError(t, os.Symlink("b", filepath.Join(folder, "link")))
	files, err := demoFiles(t.Context(), folder)
	require.NoError(t, err)
	require.Equal(t, []string{"a/c", "b"}, files)

	repository := t.TempDir()
	for _, path := range []string{"tracked", "sub/bin/tracked too", "untracked"} {
		write(t, repository, path, "x")
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "tracked", "sub"}} {
		command := exec.CommandContext(t.Context(), "git", args...)
		command.Dir = repository
		out, err := command.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	files, err = demoFiles(t.Context(), repository)
	require.NoError(t, err)
	require.Equal(t, []string{"sub/bin/tracked too", "tracked"}, files)
}

func TestRounds(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write(t, folder, "small", "x")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "large"), nil, 0o600))
	for size, wants := range map[int64]int{0: checksum.MaxRounds, demoWork / 8: 7, demoWork / 2: 1, 4 * demoWork: 1} {
		require.NoError(t, os.Truncate(filepath.Join(folder, "large"), size))
		rounds, err := roundsFor(folder, []string{"small", "large"})
		require.NoError(t, err)
		require.Equal(t, wants, rounds, size)
	}
	_, err := roundsFor(folder, []string{"gone"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestBatches(t *testing.T) {
	t.Parallel()
	for n, wants := range map[int]int{1: 1, 2000: 2000, 2001: 1001, 500_000: 2000, 4_000_000: 4000} {
		got := batches(make([]string, n))
		require.Len(t, got, wants, n)
		total := 0
		for _, group := range got {
			total += len(group)
		}
		require.Equal(t, n, total)
	}
}

// Those who are called count the calls: the provider that is down is asked once for each event, the one that works
// twice, and the tool once.
func TestDemoOfTheMesh(t *testing.T) {
	got := clitest.Run(t.Context(), "", "demo", "--scenario", "mesh", "-o", "json")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	var report meshReport
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &report))
	require.Equal(t, map[string]int{"north": 2, "south": 4, "open_ticket": 2}, report.Calls)
	require.Equal(t, 100, report.Tokens)
	for _, what := range []string{"T-1: call 1 fails, and the next route is tried: north answered 503",
		"T-1: the step's check does not accept that: severity must be 1, 2 or 3", "T-1: call 3 is answered by south",
		"The event of T-1 is sent again", "T-2 waits for a person", "T-2: the tool open_ticket is called"} {
		require.Contains(t, got.Stderr, what)
	}
}
