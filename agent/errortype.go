package agent

import (
	"errors"

	"mainstay.dev/mainstay/fleet"
)

// Types of failures that the agent itself reports.
const (
	// ErrorTypeTimeout: the handler ran longer than its task's timeout.
	ErrorTypeTimeout = "timeout"
	// ErrorTypeNoBeacon: the handler gave no sign of life for its task's beacon timeout.
	ErrorTypeNoBeacon = fleet.ErrorTypeNoBeacon
	// ErrorTypePanic: the handler panicked.
	ErrorTypePanic = "panic"
)

// Typed gives an error a type, such as "bad_input"; a task may list types that must not be tried again
// (retry.non_retryable). An error with a method ErrorType() string has its own type. A type is cut to 128 bytes. Typed
// returns nil for nil.
func Typed(errorType string, err error) error {
	if err == nil {
		return nil
	}
	return &typed{errorType, err}
}

type typed struct {
	errorType string
	err       error
}

func (e *typed) Error() string     { return e.err.Error() }
func (e *typed) Unwrap() error     { return e.err }
func (e *typed) ErrorType() string { return e.errorType }

// errorType is the outermost type in err's chain, or "".
func errorType(err error) string {
	var named interface {
		error
		ErrorType() string
	}
	if !errors.As(err, &named) {
		return ""
	}
	return cutText(named.ErrorType(), fleet.MaxErrorTypeBytes)
}
