// Command mainstay-agent is `mainstay agent run` by itself: an agent that executes commands, without the control plane
// and without Temporal.
package main

import (
	"os"

	"mainstay.dev/mainstay/internal/cli/agentrun"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/agent"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "dev"

func main() {
	agent.HideEnvironment()
	a := app.New(version)
	ctx, stop := a.Signals()
	command := agentrun.Command(a)
	command.Use, command.Version = "mainstay-agent", version
	command.Example = "  mainstay-agent --hub http://10.0.0.5:8080 --cluster build --id build-1 --slots 4 --allow-exec"
	code := a.Execute(ctx, command, os.Args[1:])
	stop()
	os.Exit(code)
}
