// Command mainstay is the whole of Mainstay in one binary: control plane, agent and command line client. It is the only
// place that wires the parts together.
package main

import (
	"os"

	"mainstay.dev/mainstay/cli/app"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "dev"

func main() {
	a := app.New(version)
	ctx, stop := a.Signals()
	code := a.Execute(ctx, rootCommand(a), os.Args[1:])
	stop()
	os.Exit(code)
}
