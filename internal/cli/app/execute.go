package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/textfile"
	"mainstay.dev/sdk/client"
	"mainstay.dev/sdk/protocol"
)

// Execute runs a command line of a program and returns the process's exit code. root has the program's commands.
func (a *App) Execute(ctx context.Context, root *cobra.Command, args []string) int {
	for i, arg := range args {
		if textfile.Check(arg) != nil { // JSON, which carries most of them, would not keep it
			fmt.Fprintf(a.Stderr, "Error: argument %d is not UTF-8: write it as UTF-8, or rename the file\n", i+1)
			return ExitUsage
		}
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if c.Name() == "submit" && strings.HasSuffix(c.Use, commandAfterDashes) && c.Flags().NArg() > 0 {
			return errDashes // the flag is one of the command that is to run
		}
		return WithExit(ExitUsage, plainFlagError(c, err))
	})
	classifyUsage(root)
	fitHelp(root, helpWidth())
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

// OutliveReader makes a long-running command go on when nobody reads its output any more, as with `| head -1`, or it
// cannot be written, as on a full disk. Only the output is lost.
func (a *App) OutliveReader(*cobra.Command, []string) error {
	catchBrokenPipes()
	a.Stdout, a.Stderr = unreadOutput{a.Stdout}, unreadOutput{a.Stderr}
	return nil
}

// catchBrokenPipes makes writes to a pipe without a reader fail, where the kernel's signal would end the process. Child
// processes get the signal as usual. It comes for broken connections too, so by itself it means nothing.
func catchBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// unreadOutput is an output that may fail.
type unreadOutput struct{ io.Writer }

// Write implements io.Writer.
func (o unreadOutput) Write(p []byte) (int, error) {
	_, _ = o.Writer.Write(p)
	return len(p), nil
}

// StopUnread makes a command with processes of its own stop as after Ctrl-C when nobody reads its output any more, as
// with `| head -1`. Else the first line written then would end it on the spot, and leave its processes behind.
func (a *App) StopUnread(c *cobra.Command, _ []string) error {
	ctx, stop := context.WithCancel(c.Context())
	catchBrokenPipes() // now, and while it stops
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

// Exit codes. They are an interface: scripts rely on them.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitUnreachable = 4
	ExitConflict    = 5
	ExitIncomplete  = 6
	ExitRefused     = 7
	ExitInterrupted = 130 // as shells have it for Ctrl-C
)

// exitCodes documents them; the help of the root command shows the table.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{ExitOK, "done"},
	{ExitFailure, "failed"},
	{ExitUsage, "the command line or the submitted request is wrong"},
	{ExitNotFound, "there is no such task, agent, cluster or failover"},
	{ExitUnreachable, "the control plane cannot be reached"},
	{ExitConflict, "fenced by a newer process, or not possible in the present state"},
	{ExitIncomplete, "the task or failover that was waited for did not complete"},
	{ExitRefused, "the token is missing or wrong, or does not allow it"},
	{ExitInterrupted, "interrupted, as by Ctrl-C; what the control plane was asked for goes on"},
}

// exitError is an error that ends the process with a code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// WithExit gives an error the exit code with which it ends the process; nil stays nil.
func WithExit(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

// UsageError is an error of the command line.
func UsageError(format string, args ...any) error {
	return &exitError{ExitUsage, fmt.Errorf(format, args...)}
}

// IncompleteError is the error for what was waited for and did not complete.
func IncompleteError(format string, args ...any) error {
	return &exitError{ExitIncomplete, fmt.Errorf(format, args...)}
}

// ExitCode classifies an error once, at the end of a command.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if coded, ok := errors.AsType[*exitError](err); ok {
		return coded.code
	}
	if _, ok := errors.AsType[*client.UnreachableError](err); ok {
		return ExitUnreachable
	}
	if problem, ok := errors.AsType[*client.Error](err); ok {
		if problem.Code == protocol.CodeNotFound || problem.Code == "" {
			return ExitFailure // the address is wrong: nothing is known of what was asked for
		}
		switch problem.Status {
		case http.StatusUnauthorized, http.StatusForbidden:
			return ExitRefused
		case http.StatusNotFound:
			return ExitNotFound
		case http.StatusConflict, http.StatusPreconditionFailed:
			return ExitConflict
		case http.StatusServiceUnavailable:
			return ExitUnreachable
		case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
			return ExitUsage
		}
	}
	return ExitFailure
}

// goesOn is the error of an interrupted wait. The work itself goes on.
type goesOn struct {
	error
	what, wait, cancel string
}

// Unwrap returns the interruption.
func (e *goesOn) Unwrap() error { return e.error }

// GoesOn makes the error of an interrupted wait say that the work goes on, and which commands wait again and cancel it.
// Other errors stay as they are.
func GoesOn(err error, what, wait, cancel string) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	return &goesOn{err, what, wait, cancel}
}

// message is the text of an error for people.
func message(err error) string {
	if on, ok := errors.AsType[*goesOn](err); ok {
		return fmt.Sprintf("interrupted; %s goes on\n  Wait for it:  %s\n  Cancel it:    %s", on.what, on.wait, on.cancel)
	}
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	if away, ok := errors.AsType[*client.UnreachableError](err); ok {
		return err.Error() + hint(away)
	}
	return err.Error()
}

// ExitCodeHelp is the table of exit codes for the help of the root command.
func ExitCodeHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "  %3d  %s\n", e.code, e.meaning)
	}
	return strings.TrimRight(b.String(), "\n")
}
