// Package process tests the real program: its processes, signals, exit codes and messages.
package process

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"mainstay.dev/mainstay/internal/devserver"
	"mainstay.dev/mainstay/testsuite/build"
)

// scratch is the folder of what the test binary shares; TestMain removes it.
var scratch string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "mainstay-process-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	defer stopShared()
	return m.Run()
}

// binary is the program, built once.
var binary = sync.OnceValues(func() (string, error) { return build.Program(scratch) })

// benchmarks is mainstay-bench, built once beside the program.
var benchmarks = sync.OnceValues(func() (string, error) {
	program, err := binary()
	if err != nil {
		return "", err
	}
	return build.Bench(program)
})

// temporal starts the Temporal that all tests of `serve` share.
var temporal = sync.OnceValues(func() (*devserver.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := devserver.Start(ctx, devserver.Options{})
	if err == nil {
		atEnd(server.Stop)
	}
	return server, err
})

var (
	endings sync.Mutex
	ends    []func()
)

// atEnd has do called when all tests have ended, the newest first.
func atEnd(do func()) {
	endings.Lock()
	defer endings.Unlock()
	ends = append(ends, do)
}

func stopShared() {
	for i := len(ends) - 1; i >= 0; i-- {
		ends[i]()
	}
}
