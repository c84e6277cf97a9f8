// Package build builds the mainstay program for the tests that run it.
package build

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Env names a program that is built already. `make test` builds one for all packages; go test alone builds one for each.
const Env = "MAINSTAY_PROGRAM"

// Program returns the path of the program of this checkout: the one that Env names, or one built in dir.
func Program(dir string) (string, error) {
	if path := os.Getenv(Env); path != "" {
		return path, nil
	}
	path := filepath.Join(dir, "mainstay")
	return path, Go("build", "-ldflags", "-s -w", "-o", path, "mainstay.dev/mainstay/cmd/mainstay")
}

// Go runs the go command; its error holds what it printed. Programs need no C library, so that they run in any image.
func Go(args ...string) error {
	command := exec.Command("go", args...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, output)
	}
	return nil
}
