package process

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheServerIsFound starts mainstay with and without mainstay-server beside it, in the PATH, and of another version.
func TestTheServerIsFound(t *testing.T) {
	t.Parallel()
	built, err := binary()
	require.NoError(t, err)
	alone, elsewhere := t.TempDir(), t.TempDir()
	mainstay := filepath.Join(alone, "mainstay")
	program, err := os.ReadFile(built)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(mainstay, program, 0o700))
	run := func(path string, env []string, args ...string) (output string, code int) {
		command := exec.CommandContext(t.Context(), path, args...)
		command.Env = append(plainEnvironment(), env...)
		text, err := command.CombinedOutput()
		if command.ProcessState == nil {
			require.NoError(t, err)
		}
		return string(text), command.ProcessState.ExitCode()
	}
	noPath := []string{"PATH=" + elsewhere}

	output, code := run(mainstay, noPath, "dev")
	require.Equal(t, 1, code)
	require.Equal(t, "Error: the program mainstay-server is neither in "+alone+
		" nor in the PATH: put it beside mainstay; `make build` builds both\n", output)
	_, code = run(mainstay, noPath, "version")
	require.Equal(t, 0, code, "nothing else needs the server")

	script := []byte("#!/bin/sh\necho \"$MAINSTAY_CALLER_VERSION $*\"; exit 7\n")
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "mainstay-server"), script, 0o700))
	version, _ := run(mainstay, noPath, "version")
	output, code = run(mainstay, noPath, "serve", "--roles", "two words")
	require.Equal(t, 7, code, "it is the server's")
	require.Contains(t, output, "serve --roles two words")
	require.Contains(t, version, string(bytes.Fields([]byte(output))[0]))
	require.NoError(t, os.WriteFile(filepath.Join(alone, "mainstay-server"), []byte("#!/bin/sh\nexit 8\n"), 0o700))
	_, code = run(mainstay, noPath, "dev", "--help")
	require.Equal(t, 8, code, "that beside it comes first")

	server := filepath.Join(filepath.Dir(built), "mainstay-server")
	output, code = run(server, []string{"MAINSTAY_CALLER_VERSION=v0.0.1"}, "openapi")
	require.Equal(t, 1, code)
	require.Contains(t, output, "mainstay is of version v0.0.1, and "+server+" of ")
}
