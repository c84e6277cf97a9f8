// Command mainstay-bench measures Mainstay, beside bare Temporal where there is something to compare. It starts the
// program mainstay that is beside it, else that in the PATH.
package main

import (
	"os"

	"mainstay.dev/mainstay/cmd/mainstay-bench/bench"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/agent"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "dev"

func main() {
	agent.HideEnvironment()
	a := app.New(version)
	ctx, stop := a.Signals()
	code := a.Execute(ctx, bench.Command(a), os.Args[1:])
	stop()
	os.Exit(code)
}
