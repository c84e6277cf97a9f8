package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/protocol"
)

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

// ExitCode classifies an error once, at the end of a command.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	var coded *exitError
	if errors.As(err, &coded) {
		return coded.code
	}
	var away *client.UnreachableError
	if errors.As(err, &away) {
		return ExitUnreachable
	}
	var problem *client.Error
	if errors.As(err, &problem) {
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

// message is what a person is told of an error.
func message(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	var away *client.UnreachableError
	if errors.As(err, &away) {
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
