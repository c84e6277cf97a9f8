package agent

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestConform(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"it passes": {[]string{"--check", "register", "--", "python3", "../../../examples/python/agent.py"}, app.ExitOK,
			[]string{"pass  register         register with agent_id"}},
		"it fails": {[]string{"--check", "register", "--", "sh", "-c", "echo its trouble; exit 3"}, app.ExitFailure,
			[]string{"FAIL  register", "\n      the program ended by itself: exit status 3\n",
				"\n      see docs/AGENT-PROTOCOL.md#register\n", "\n        its trouble\n", "1 of 1 check failed"}},
		"it is left out": {[]string{"--check", "cancel", "--long-type", "nap", "--", "python3",
			"../../../examples/python/agent.py"}, app.ExitOK, []string{"skip  cancel", `no tasks of type "nap"`}},
		"as JSON": {[]string{"--check", "register", "-o", "json", "--", "python3", "../../../examples/python/agent.py"},
			app.ExitOK, []string{`"check": "register",`, `"outcome": "pass"`}},
		"there is no such program": {[]string{"--check", "register", "--", "/nowhere/agent"}, app.ExitFailure,
			[]string{"start the agent: fork/exec /nowhere/agent: no such file"}},
		"no such check": {[]string{"--check", "nap", "--", "true"}, app.ExitUsage, []string{"there are register, "}},
		"no JSON":       {[]string{"--payload", "{", "--", "true"}, app.ExitUsage, []string{"must be JSON"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t.Context(), "", append([]string{"conform"}, c.args...)...)
			require.Equal(t, c.code, got.Code, got.Stdout+got.Stderr)
			for _, says := range c.says {
				require.Contains(t, got.Stdout+got.Stderr, says)
			}
		})
	}
}
