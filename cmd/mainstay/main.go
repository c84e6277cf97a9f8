// Command mainstay is the whole of Mainstay in one binary: control plane, agent and command line client.
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
