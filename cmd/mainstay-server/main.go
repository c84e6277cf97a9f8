// Command mainstay-server is Mainstay's control plane, which mainstay starts for `mainstay serve`, `mainstay dev` and
// whatever else needs it.
package main

import (
	"os"

	"mainstay.dev/mainstay/internal/server"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "dev"

func main() {
	os.Exit(server.Main(version))
}
