// Command mainstay is the whole of Mainstay in one binary: control plane, agent and command line client. It is the only
// place that wires the parts together.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "dev"

func main() {
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, stdoutTTY: isTerminal(os.Stdout),
		getenv: os.Getenv, now: time.Now,
	}
	ctx, stop := a.signals()
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// app is what commands have of the world outside.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	stdoutTTY      bool
	getenv         func(string) string
	now            func() time.Time

	output string // -o: text or json
	server string // --server
	access clientAccess

	// atForce is called when a person does not want to wait for a clean stop.
	atForce atomic.Pointer[func()]
}

// signals returns a context that ends at the first SIGINT, SIGTERM or SIGHUP. The second one ends the process.
func (a *app) signals() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(received, syscall.SIGHUP)
	}
	go func() {
		<-received
		cancel()
		<-received
		fmt.Fprintln(a.stderr, "Stopping at once.")
		if force := a.atForce.Load(); force != nil {
			(*force)()
		}
		os.Exit(exitFailure)
	}()
	return ctx, func() { signal.Stop(received); cancel() }
}

// isTerminal reports whether a person is likely to watch the file.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
