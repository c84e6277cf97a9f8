package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

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
	var problem *ProblemError
	if errors.As(err, &problem) {
		if problem.Code == protocol.CodeNotFound {
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

// ProblemError is an RFC 9457 answer of the control plane.
type ProblemError struct{ protocol.Problem }

func (e *ProblemError) Error() string {
	var b strings.Builder
	switch {
	case e.Code == protocol.CodeNotFound:
		b.WriteString("there is no such path at this address: is a gateway behind it, and of this version? `mainstay status` tells")
	case len(e.Errors) > 0:
		b.WriteString(strings.TrimSuffix(e.Detail, "; errors says where"))
	case e.Detail != "":
		b.WriteString(e.Detail)
	default:
		b.WriteString(e.Title)
	}
	fmt.Fprintf(&b, " (%s)", e.Code)
	for _, field := range e.Errors {
		fmt.Fprintf(&b, "\n  %s: %s", field.Location, field.Message)
	}
	return b.String()
}

// message is what a person is told of an error.
func message(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
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

// IsNotFound reports whether the API answered that there is no such thing.
func IsNotFound(err error) bool {
	var problem *ProblemError
	return errors.As(err, &problem) && problem.Status == http.StatusNotFound
}
