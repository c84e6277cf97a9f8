//go:build unix

package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// What can never start fails at once, and says why.
func TestWhatCannotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	require.NoError(t, os.Symlink("/no/such/target", filepath.Join(dir, "dangling")))
	file("plain", "#!/bin/sh\n", 0o644)
	for name, c := range map[string]struct {
		payload agent.ExecPayload
		why     string
	}{
		"no program":                {agent.ExecPayload{Command: []string{"no-such-program"}}, `there is no program "no-such-program" in its PATH (/`},
		"no file":                   {agent.ExecPayload{Command: []string{"./nothing"}, Dir: dir}, `there is no file "./nothing" in its directory "` + dir + `"`},
		"no file, and no directory": {agent.ExecPayload{Command: []string{"./nothing"}}, `, where this agent runs: give the whole path, or dir`},
		"one word":                  {agent.ExecPayload{Command: []string{"ls -l /"}}, `there is no file "ls -l /": it has blanks: give the program and each argument as a word of its own`},
		"one word, no path":         {agent.ExecPayload{Command: []string{"make test"}}, `there is no program "make test": it has blanks`},
		"a shell's word":            {agent.ExecPayload{Command: []string{"cd", "/tmp"}}, `there is no program "cd": only a shell knows it: ["sh", "-c", "cd …"]`},
		"a shell's variable":        {agent.ExecPayload{Command: []string{"CI=1", "make"}}, `no shell reads it: set the variable CI with env`},
		"a shell's home":            {agent.ExecPayload{Command: []string{"~/run.sh"}}, `there is no file "~/run.sh": no shell reads it: write out what`},
		"a directory in it":         {agent.ExecPayload{Command: []string{"pwd"}, Dir: "$HOME/x"}, `its directory "$HOME/x" does not exist: no shell reads it`},
		"a dead link":               {agent.ExecPayload{Command: []string{"./dangling"}, Dir: dir}, `is a link to "/no/such/target", which does not exist`},
		"no directory":              {agent.ExecPayload{Command: []string{"/bin/echo"}, Dir: "/nowhere"}, `its directory "/nowhere" does not exist`},
		"the same, name":            {agent.ExecPayload{Command: []string{"echo"}, Dir: "/nowhere"}, `its directory "/nowhere" does not exist`},
		"a file as directory": {agent.ExecPayload{Command: []string{"echo"}, Dir: "/etc/passwd"},
			`its directory "/etc/passwd" is no directory`},
		"a directory":    {agent.ExecPayload{Command: []string{dir}}, `is a directory, not a program`},
		"not executable": {agent.ExecPayload{Command: []string{"./plain"}, Dir: dir}, `"./plain" is not executable: make it so with chmod +x`},
		"the same, in PATH": {agent.ExecPayload{Command: []string{"plain"}, Env: map[string]string{"PATH": dir}},
			`plain" is not executable: make it so with chmod +x`},
		"no interpreter":  {agent.ExecPayload{Command: []string{file("perl", "#!/opt/perl4 -w\n", 0o755)}}, `names the interpreter "/opt/perl4", which is not there`},
		"CR LF":           {agent.ExecPayload{Command: []string{file("dos", "#!/bin/sh\r\ntrue\r\n", 0o755)}}, `ends with CR LF: convert it with dos2unix`},
		"CR LF after env": {agent.ExecPayload{Command: []string{file("dosenv", "#!/usr/bin/env sh\r\ntrue\r\n", 0o755)}}, `ends with CR LF: convert it with dos2unix`},
		"no first line":   {agent.ExecPayload{Command: []string{file("bare", "echo hello\n", 0o755)}}, `has no line such as #!/bin/sh at its beginning`},
		"byte order mark": {agent.ExecPayload{Command: []string{file("bom", "\ufeff#!/bin/sh\n", 0o755)}}, `begins with a byte order mark`},
		"empty":           {agent.ExecPayload{Command: []string{file("empty", "", 0o755)}}, `is empty`},
		"another machine": {agent.ExecPayload{Command: []string{file("alien", "\x7fELF\x00\x00\x00\x00", 0o755)}}, `is no program for this machine (`},
		"much in all":     {agent.ExecPayload{Command: append([]string{"echo"}, slices.Repeat([]string{strings.Repeat("x", 100_000)}, 25)...)}, `too long together`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			payload, err := json.Marshal(c.payload)
			require.NoError(t, err)
			result := execute(t, string(payload))
			require.Equal(t, api.AttemptFailed, result.Outcome)
			require.Contains(t, result.Error, c.why)
			require.True(t, result.NonRetryable)
		})
	}
}

// The program is looked for in the PATH that the command gets, from its directory.
func TestProgramsAreFoundInTheCommandsPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tools"), 0o700))
	for _, name := range []string{"tools/htool", "here"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho \"$0\"\n"), 0o700))
	}
	for name, c := range map[string]struct{ program, path, want string }{
		"absolute":     {"htool", dir + "/tools:/bin", dir + "/tools/htool\n"},
		"relative":     {"htool", "/bin:tools", "tools/htool\n"},
		"empty entry":  {"here", "/bin:", "./here\n"},
		"a path":       {"tools/htool", "/bin", "tools/htool\n"},
		"not existing": {"htool", "/nowhere::" + dir + "/tools/", dir + "/tools/htool\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			payload, err := json.Marshal(agent.ExecPayload{Command: []string{c.program}, Dir: dir,
				Env: map[string]string{"PATH": c.path}})
			require.NoError(t, err)
			out, err := agent.ExecHandler()(t.Context(), &agent.Task{Payload: payload})
			require.NoError(t, err)
			require.Equal(t, c.want, out.(agent.ExecResult).Stdout)
		})
	}
}
