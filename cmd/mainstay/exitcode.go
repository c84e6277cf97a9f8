package main

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
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnreachable = 4
	exitConflict    = 5
	exitIncomplete  = 6
	exitRefused     = 7
	exitInterrupted = 130 // as shells have it for Ctrl-C
)

// exitCodes documents them; the help of the root command shows the table.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "done"},
	{exitFailure, "failed"},
	{exitUsage, "the command line or the submitted request is wrong"},
	{exitNotFound, "there is no such task, agent, cluster or failover"},
	{exitUnreachable, "the control plane cannot be reached"},
	{exitConflict, "fenced by a newer process, or not possible in the present state"},
	{exitIncomplete, "the task or failover that was waited for did not complete"},
	{exitRefused, "the token is missing or wrong, or does not allow it"},
	{exitInterrupted, "interrupted, as by Ctrl-C; what the control plane was asked for goes on"},
}

// exitError is an error that ends the process with a code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func withExit(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// exitCode classifies an error once, at the end of a command.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	var coded *exitError
	if errors.As(err, &coded) {
		return coded.code
	}
	var problem *problemError
	if errors.As(err, &problem) {
		if problem.Code == protocol.CodeNotFound {
			return exitFailure // the address is wrong: nothing is known of what was asked for
		}
		switch problem.Status {
		case http.StatusUnauthorized, http.StatusForbidden:
			return exitRefused
		case http.StatusNotFound:
			return exitNotFound
		case http.StatusConflict, http.StatusPreconditionFailed:
			return exitConflict
		case http.StatusServiceUnavailable:
			return exitUnreachable
		case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
			return exitUsage
		}
	}
	return exitFailure
}

// problemError is an RFC 9457 answer of the control plane.
type problemError struct{ protocol.Problem }

func (e *problemError) Error() string {
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
