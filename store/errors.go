package store

import (
	"context"
	"errors"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
)

// Kind is what an error of Temporal means to the one who asked.
type Kind int

// The kinds of errors.
const (
	Other       Kind = iota // also no error at all
	NotFound                // there is no such thing, or a change came after its end
	Exists                  // there is one with this id
	Refused                 // its present state does not allow the change; Refusal says why
	Outdated                // the change was meant for an older state
	Unavailable             // Temporal, or a worker for it, did not answer in time
	Unsure                  // the same of a change, which may be made yet
	Blocked                 // Temporal does not allow it now
	Invalid                 // Temporal does not understand it
	Unsupported             // this Temporal is too old for it
)

// unsureError is of a change that may yet be made.
type unsureError struct{ err error }

func (e *unsureError) Error() string { return e.err.Error() }
func (e *unsureError) Unwrap() error { return e.err }

// KindOf is the one place where errors of Temporal are told apart.
func KindOf(err error) Kind {
	var application *temporal.ApplicationError
	switch {
	case err == nil:
		return Other
	case errors.As(err, &application) && application.Type() == contract.Refused:
		return Refused
	case errors.As(err, &application) && application.Type() == contract.Outdated:
		return Outdated
	case isAny[*serviceerror.NotFound](err):
		return NotFound
	case isAny[*serviceerror.WorkflowExecutionAlreadyStarted](err), isAny[*serviceerror.AlreadyExists](err):
		return Exists
	case isAny[*unsureError](err):
		return Unsure
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		isAny[*serviceerror.Unavailable](err),
		isAny[*serviceerror.DeadlineExceeded](err),
		isAny[*serviceerror.Canceled](err),
		isAny[*serviceerror.Aborted](err),
		isAny[*serviceerror.ResourceExhausted](err),
		isAny[*serviceerror.NamespaceUnavailable](err),
		isAny[*serviceerror.NamespaceNotActive](err),
		isAny[*serviceerror.WorkflowNotReady](err),
		isAny[*client.WorkflowUpdateServiceTimeoutOrCanceledError](err):
		return Unavailable
	case isAny[*serviceerror.FailedPrecondition](err):
		return Blocked
	case isAny[*serviceerror.InvalidArgument](err):
		return Invalid
	case isAny[*serviceerror.Unimplemented](err):
		return Unsupported
	}
	return Other
}

// Refusal is why a workflow refused a change, in words for people.
func Refusal(err error) string {
	var application *temporal.ApplicationError
	if errors.As(err, &application) {
		return application.Message()
	}
	return ""
}

func isAny[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}
