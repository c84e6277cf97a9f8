// Package server is the command line of the program mainstay-server, which mainstay starts for its commands that need
// the control plane.
package server

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/controlplane"
	"mainstay.dev/mainstay/internal/controlplane/dev"
	"mainstay.dev/mainstay/internal/demo"
	"mainstay.dev/sdk/agent"
)

// Main runs this process's command line and returns its exit code. version is the program's.
func Main(version string) int {
	agent.HideEnvironment()
	a := app.New(version)
	if caller, called := os.LookupEnv(app.CallerVersionEnv); called {
		_ = os.Unsetenv(app.CallerVersionEnv) // programs that this process starts have another caller
		if caller != version {
			program, _ := os.Executable()
			fmt.Fprintf(a.Stderr, "Error: mainstay is of version %s, and %s of %s: install both of the same version\n",
				caller, program, version)
			return app.ExitFailure
		}
	}
	ctx, stop := a.Signals()
	defer stop()
	// Its help and its messages name mainstay, which people call.
	root := &cobra.Command{Use: "mainstay", Short: "The control plane of Mainstay: what `mainstay` starts"}
	root.AddCommand(Commands(a)...)
	return a.Execute(ctx, root, os.Args[1:])
}

// Commands are the program's commands.
func Commands(a *app.App) []*cobra.Command {
	commands := []*cobra.Command{demo.Command(a), dev.Command(a), controlplane.OpenAPICommand(a),
		controlplane.ServeCommand(a)}
	for _, c := range commands {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	return append(commands, controlplane.ConfigCommand(a))
}
