package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Execute runs a command line of a program and returns the process's exit code. root has the program's commands.
func (a *App) Execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return WithExit(ExitUsage, plainFlagError(err)) })
	classifyUsage(root)
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.InitDefaultCompletionCmd() // it writes where the root does at this time
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		classifyUsage(completion)
	}
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	code := ExitCode(err)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		code = ExitInterrupted
	}
	if text := message(err); text != "" {
		fmt.Fprintln(a.Stderr, "Error:", text)
	}
	if code == ExitUsage && command != nil {
		fmt.Fprintf(a.Stderr, "See `%s --help`.\n", command.CommandPath())
	}
	return code
}

// StopUnread has a command with processes of its own stop as after Ctrl-C when nobody reads its output any more, as
// with `| head -1`. Else the first line written then would end it on the spot, and leave its processes behind.
func (a *App) StopUnread(c *cobra.Command, _ []string) error {
	ctx, stop := context.WithCancel(c.Context())
	// Without this the kernel's signal ends the process, now or while it stops. It comes for connections to others too,
	// so the signal itself says nothing.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	a.Stdout, a.Stderr = &readOutput{a.Stdout, stop}, &readOutput{a.Stderr, stop}
	c.SetContext(ctx)
	return nil
}

// readOutput is an output that somebody reads, or else calls unread.
type readOutput struct {
	io.Writer
	unread func()
}

// Write implements io.Writer.
func (o *readOutput) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		o.unread()
	}
	return n, err
}
