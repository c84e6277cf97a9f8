package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestCompletion(t *testing.T) {
	t.Parallel()
	ids := func(plural, field string, list ...string) clitest.Answer {
		return clitest.Answer{Status: 200, Body: `{"` + plural + `":[{"` + field + `":"` + strings.Join(list,
			`"},{"`+field+`":"`) + `"}]}`}
	}
	f := clitest.NewAPI(t, map[string]clitest.Answer{
		"GET /api/v1/agents":           ids("agents", "id", "build-1", "build-2", "other"),
		"GET /api/v1/agents/clusters":  ids("clusters", "name", "default", "studio"),
		"GET /api/v1/agents/tasks":     ids("tasks", "id", "t-1"),
		"GET /api/v1/agents/failovers": ids("failovers", "id", "default:build-1:3"),
		"GET /api/v1/agents/schedules": ids("schedules", "name", "nightly"),
	})
	for line, want := range map[string][]string{
		"agent get b":               {"build-1", "build-2"},
		"agent get build-1 ":        {},
		"agent drain build-1 b":     {"build-2"},
		"agent maintenance o":       {"other"},
		"cluster get ":              {"default", "studio"},
		"cluster pause s":           {"studio"},
		"cluster create s":          {},
		"queue d":                   {"default"},
		"task logs t":               {"t-1"},
		"task list --cluster s":     {"studio"},
		"task list -o ":             {"text", "json"},
		"agent list --status ":      {"online", "suspect", "offline", "draining", "maintenance"},
		"task review x --decision ": {"rerun", "completed", "failed"},
		"token create x --role ":    {"viewer", "operator", "admin"},
		"failover list --status ": {"running", "succeeded", "not_in_cluster", "no_target_available",
			"failed"},
		"agent maintenance build-1 ":             {"on", "off"},
		"task priority t-1 ":                     {"critical", "high", "normal", "low", "background"},
		"failover get ":                          {"default:build-1:3"},
		"schedule trigger n":                     {"nightly"},
		"cluster create x --selection-strategy ": {"standby", "least_loaded", "round_robin", "affinity"},
	} {
		words := strings.Split(line, " ")
		args := append([]string{cobra.ShellCompNoDescRequestCmd}, words[:1]...)
		if words[0] != "queue" {
			args = append(args, words[1])
			words = words[1:]
		}
		args = append(append(args, "--server", f.URL), words[1:]...)
		got := clitest.Run(t.Context(), "", args...)
		require.Equal(t, app.ExitOK, got.Code, "%s: %s", line, got.Stderr)
		lines := strings.Split(strings.TrimSpace(got.Stdout), "\n")
		require.Equal(t, ":4", lines[len(lines)-1], "%s: no file names", line)
		require.ElementsMatch(t, want, lines[:len(lines)-1], line)
	}
	require.Contains(t, clitest.Run(t.Context(), "", cobra.ShellCompNoDescRequestCmd, "events", "--type", "").Stdout,
		"task.completed\n")
	got := clitest.Run(t.Context(), "", cobra.ShellCompNoDescRequestCmd, "agent", "get", "--server", "127.0.0.1:1", "")
	require.Equal(t, ":4", strings.TrimSpace(got.Stdout), "nobody answers: nothing is offered, and nothing is said")
	require.Contains(t, clitest.Run(t.Context(), "", "completion", "bash").Stdout, "bash completion")
	wrong := clitest.Run(t.Context(), "", "completion", "nonsense")
	require.Equal(t, app.ExitUsage, wrong.Code)
	require.Contains(t, wrong.Stderr, `there is no command "mainstay completion nonsense"`)
	require.Contains(t, clitest.Run(t.Context(), "", "completion").Stdout, "zsh", "help")
}
