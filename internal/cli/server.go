package cli

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
)

// ofServer are the commands of mainstay-server, with their short descriptions. This program starts it for them, so that
// all other commands carry no control plane.
var ofServer = map[string]string{
	"config":  "Check a configuration file, and show what holds and why",
	"demo":    "Show it on real work: agents digest every file of a folder",
	"dev":     "Run everything here: Temporal, its Web UI, the control plane and some agents",
	"openapi": "Print the OpenAPI 3.1 document of the REST API and of the agent protocol",
	"serve":   "Run the control plane, or parts of it, against a Temporal",
}

func serverCommands(a *app.App) []*cobra.Command {
	var commands []*cobra.Command
	for name, short := range ofServer {
		c := &cobra.Command{
			Use: name, Short: short, DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error { return startServer(a, name, args...) },
			ValidArgsFunction: func(c *cobra.Command, args []string, begun string) ([]cobra.Completion,
				cobra.ShellCompDirective) {
				return completeByServer(c, a, append(append([]string{name}, args...), begun))
			},
		}
		c.SetHelpFunc(func(c *cobra.Command, _ []string) {
			c.PrintErrln("Error:", startServer(a, name, "--help"))
		})
		commands = append(commands, c)
	}
	return commands
}

// startServer goes on as mainstay-server: the same process, with its terminal and its signals. It returns only if it
// fails.
func startServer(a *app.App, command string, args ...string) error {
	program, err := a.Program("mainstay-server")
	if err != nil {
		return err
	}
	err = replaceProcess(program, append([]string{app.ProgramName(), command}, args...),
		append(os.Environ(), app.CallerVersionEnv+"="+a.Version))
	return fmt.Errorf("start %s: %w", program, err)
}

// completeByServer asks mainstay-server what a shell may offer.
func completeByServer(c *cobra.Command, a *app.App, line []string) ([]cobra.Completion, cobra.ShellCompDirective) {
	program, err := a.Program("mainstay-server")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	line = append([]string{cobra.ShellCompRequestCmd}, line...)
	output, err := exec.CommandContext(c.Context(), program, line...).Output()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	// The last line is the directive, as :4. Descriptions of offers may have colons too.
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	last := len(lines) - 1
	number, _ := strconv.Atoi(strings.TrimPrefix(lines[last], ":"))
	return lines[:last], cobra.ShellCompDirective(number)
}
