// Command mainstay is the command line and the agent. The control plane is mainstay-server, which it starts.
package main

import (
	"os"

	"mainstay.dev/mainstay/internal/cli"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "dev"

func main() {
	os.Exit(cli.Main(version))
}
