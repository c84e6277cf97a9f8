package cli

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
	"mainstay.dev/mainstay/internal/server"
)

func TestMain(m *testing.M) { clitest.Main(m, whole) }

// whole has the commands of both programs, as a person sees them.
func whole(a *app.App) *cobra.Command {
	root := rootCommand(a)
	for _, c := range root.Commands() {
		if ofServer[c.Name()] != "" {
			root.RemoveCommand(c)
		}
	}
	root.AddCommand(server.Commands(a)...)
	return root
}

func TestCommandsOfTheServerAreKnown(t *testing.T) {
	t.Parallel()
	known := map[string]string{}
	for _, c := range server.Commands(&app.App{}) {
		known[c.Name()] = c.Short
	}
	require.Equal(t, known, ofServer)
}

func TestUsageErrorsEndWithCode2(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		wants string
	}{
		"unknown command":      {[]string{"fly"}, `there is no command "mainstay fly"`},
		"unknown subcommand":   {[]string{"task", "fly"}, `there is no command "mainstay task fly"`},
		"plural":               {[]string{"tasks"}, `did you mean "mainstay task"?`},
		"misspelt":             {[]string{"task", "cancle"}, `did you mean "mainstay task cancel"?`},
		"unknown flag":         {[]string{"task", "list", "--fly"}, "unknown flag: --fly"},
		"misspelt flag":        {[]string{"task", "list", "--stauts=queued"}, "unknown flag: --stauts; did you mean --status?"},
		"missing argument":     {[]string{"task", "get"}, "needs a task's id"},
		"too many arguments":   {[]string{"cluster", "get", "a", "b"}, "needs a cluster's name"},
		"arguments where none": {[]string{"agent", "list", "x"}, "takes no arguments"},
		"bad output":           {[]string{"agent", "list", "-o", "yaml"}, "--output must be text or json"},
		"bad server": {[]string{"agent", "list", "--server", "ftp://x"},
			"--server: must be like http://127.0.0.1:8080"},
		"negative attempt": {[]string{"task", "logs", "--attempt", "-1", "t"},
			"--attempt must be at least 1"},
		"submit nothing":                  {[]string{"task", "submit"}, "give --type, or a command to run after --"},
		"submit without dashes":           {[]string{"task", "submit", "echo", "hello"}, "put the command to run after --"},
		"a command's flag without dashes": {[]string{"task", "submit", "--wait", "ls", "-la"}, "put the command to run after --"},
		"submit before dashes": {[]string{"task", "submit", "echo", "--", "hello"},
			"put the command to run after --"},
		"submit empty command":    {[]string{"task", "submit", "--"}, "there is no command after --"},
		"submit command and type": {[]string{"task", "submit", "--type", "x", "--", "ls"}, "is a task of type exec"},
		"submit command, payload": {[]string{"task", "submit", "--payload", "1", "--", "ls"}, "not both"},
		"submit env without":      {[]string{"task", "submit", "--type", "x", "--env", "A=b"}, "belong to a command"},
		"submit bad env":          {[]string{"task", "submit", "--env", "A", "--", "ls"}, "--env must be NAME=VALUE"},
		"submit bad label": {[]string{"task", "submit", "--label", "=x", "--", "ls"},
			"--label must be NAME=VALUE"},
		"submit bad JSON": {[]string{"task", "submit", "--type", "x", "--payload", "{"},
			"--payload is not JSON"},
		"submit missing file": {[]string{"task", "submit", "--type", "x", "--payload", "@/no/such"},
			"--payload: open /no/such"},
		"submit bad safety": {[]string{"task", "submit", "--retry-safety", "x", "--", "ls"},
			"retry_safety must be"},
		"submit bad cluster": {[]string{"task", "submit", "--cluster", "A B", "--", "ls"},
			"cluster must be in lower case"},
		"duration without a unit": {[]string{"task", "submit", "--timeout", "3", "--", "ls"},
			"--timeout must be a duration such as 30s"},
		"a word for a number": {[]string{"task", "list", "--limit", "x"}, "--limit must be a whole number"},
		"a word for a share": {[]string{"cluster", "update", "c", "--brake-share", "half"},
			"--brake-share must be a number"},
		"wait apart": {[]string{"task", "get", "t", "--wait", "15m"},
			"write --wait=15m, with an equals sign"},
		"submit with wait apart": {[]string{"task", "submit", "--wait", "15m", "--", "sleep", "1s"},
			"write --wait=15m, with an equals sign"},
		"drain with wait apart": {[]string{"agent", "drain", "a", "--wait", "15m"},
			"write --wait=15m, with an equals sign"},
		"no slots at all": {[]string{"agent", "reduce-load", "a", "--slots", "0"},
			"--slots must be between 1 and 10000"},
		"slots and a factor": {[]string{"agent", "reduce-load", "a", "--slots", "2", "--factor", "0.5"},
			"give --slots or --factor, not both"},
		"a factor of two": {[]string{"agent", "reduce-load", "a", "--factor", "2"},
			"--factor must be above 0 and at most 1"},
		"a time to come": {[]string{"task", "list", "--submitted-after", "+2h"},
			"--submitted-after must be a time such as"},
		"negative wait":             {[]string{"task", "get", "x", "--wait=-1s"}, "--wait must be at least 0s"},
		"limit":                     {[]string{"task", "list", "--limit", "0"}, "--limit must be at least 1"},
		"review without a decision": {[]string{"task", "review", "x"}, "decision must be accept, rerun, completed or failed"},
		"review with a result": {[]string{"task", "review", "x", "--decision", "rerun", "--result", "1"},
			"--result belongs to --decision completed"},
		"cluster name":           {[]string{"cluster", "create", "A B"}, "name must be in lower case"},
		"agent without handlers": {[]string{"agent", "run", "--id", "a"}, "add --allow-exec"},
		"agent id":               {[]string{"agent", "run", "--id", "A", "--allow-exec"}, "--id must be in lower case"},
		"agent hub": {[]string{"agent", "run", "--hub", "http://", "--allow-exec"},
			"--hub must be like http://host:port"},
		"agent demo folder": {[]string{"agent", "run", "--demo-handlers", "/no/such"}, "--demo-handlers"},
		"roles": {[]string{"serve", "--roles", "pilot"},
			"--roles must name some of hub, gateway, worker and spawner"},
		"no roles":       {[]string{"serve", "--roles", ""}, "--roles"},
		"log level":      {[]string{"serve", "--log-level", "loud"}, "--log-level must be"},
		"hub id":         {[]string{"serve", "--hub-id", "A"}, "--hub-id must be in lower case"},
		"no key":         {[]string{"serve"}, "openssl rand -hex 32"},
		"config file":    {[]string{"serve", "--config", "/no/such"}, "/no/such"},
		"dev both":       {[]string{"dev", "--ephemeral", "--data-dir", "x"}, "not both"},
		"dev agents":     {[]string{"dev", "--agents", "101"}, "agents"},
		"dev platform":   {[]string{"dev", "--platform", "moon"}, "--platform must be process or docker"},
		"dev image":      {[]string{"dev", "--image", "x"}, "--image needs --platform docker"},
		"dev durability": {[]string{"dev", "--durability", "eternal"}, "durability"},
		"dev temporal": {[]string{"dev", "--temporal", "0.0.0.0:7233"},
			"--temporal: the host must be one IP address"},
		"dev exec for all": {[]string{"dev", "--ephemeral", "--http", "0.0.0.0:0"}, "add --allow-exec"},
		"dev exec and Temporal": {
			[]string{"dev", "--ephemeral", "--http", "127.0.0.1:0", "--ui", "off", "--temporal", "192.0.2.1:7233"},
			"can reach Temporal on 192.0.2.1:7233, and could run any command through the agents: add --allow-exec",
		},
		"dev exec and the Web UI": {
			[]string{"dev", "--ephemeral", "--http", "127.0.0.1:0", "--ui", "0.0.0.0:0", "--temporal", "127.0.0.1:0"},
			"others than this machine can reach Temporal's Web UI on 0.0.0.0:0, and could run any command",
		},
		"demo agents": {[]string{"demo", "--agents", "101"}, "--agents must be 1 to 100"},
		"demo folder": {[]string{"demo", "--path", "/no/such"}, "--path"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t.Context(), "", c.args...)
			require.Equal(t, app.ExitUsage, got.Code, got.Stderr)
			require.Contains(t, got.Stderr, c.wants)
			require.Contains(t, got.Stderr, "--help`.")
			require.Empty(t, got.Stdout)
		})
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	root := whole(&app.App{})
	for _, c := range root.Commands() {
		for _, sub := range append(c.Commands(), c) {
			if sub.Name() == "completion" || sub.Name() == "help" || sub.HasSubCommands() {
				continue
			}
			require.NotEmpty(t, sub.Example, sub.CommandPath())
			require.NotNil(t, sub.RunE, sub.CommandPath())
		}
	}
}

func TestHelpShowsTheExitCodes(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t.Context(), "")
	require.Equal(t, app.ExitOK, got.Code)
	require.Contains(t, got.Stdout, "  6  the task or failover that was waited for did not complete")
}
