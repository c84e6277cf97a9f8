package agent

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Errors of Run.
var (
	// ErrFenced: a newer process runs under this agent's id. This one has stopped its work.
	ErrFenced = errors.New("agent: a newer process has this agent id")
	// ErrRevoked: a person revoked the agent's join token and ended its session. The agent has stopped its work.
	ErrRevoked = errors.New("agent: its join token was revoked, and its session ended with it")
	// ErrGaveUp: no hub answered for Options.GiveUpAfter.
	ErrGaveUp = errors.New("agent: gave up: no hub has answered for too long")
)

// RefusalCode is the stable code with which a hub refused the agent, as in docs/AGENT-PROTOCOL.md; "" for errors of
// another kind.
func RefusalCode(err error) string { return code(err) }

// Causes of a handler's cancelled context; see context.Cause. A timeout's cause is context.DeadlineExceeded. ErrFenced,
// ErrRevoked and ErrGaveUp may be causes too.
var (
	// ErrLeaseExpired stops a fenced task when the agent was out of touch for so long that another agent may have the
	// task.
	ErrLeaseExpired = errors.New("agent: the lease has run out: no hub has answered for too long")
	// ErrCancelled stops a task that was cancelled.
	ErrCancelled = errors.New("agent: the task was cancelled")
	// ErrDropped stops an attempt whose result no longer counts.
	ErrDropped = errors.New("agent: the attempt no longer counts")
	// ErrNoBeacon stops an attempt whose handler gave no sign of life for the task's beacon timeout.
	ErrNoBeacon = errors.New("agent: no beacon")
	// ErrUnhealthy stops an instance whose health check has failed too often.
	ErrUnhealthy = errors.New("agent: the instance is not healthy")
	// ErrStopping stops a task that a graceful stop could not wait for. The agent hands it back, and it runs elsewhere.
	ErrStopping = errors.New("agent: the agent is stopping")
)

// errLivesOn is the cause where a handler cannot end what it has started.
var errLivesOn = errors.New("agent: something that the command has started cannot be killed, and lives on")

// Reasons to end the loop that Run does not return.
var (
	errDrained = errors.New("agent: stopped with nothing left to do")
	errStuck   = errors.New("agent: stopped, but handlers did not return although their contexts had ended")
)

// NonRetryable marks a failure as final: the task fails at once, whatever its retry policy. It returns nil for nil.
func NonRetryable(err error) error {
	if err == nil {
		return nil
	}
	return &nonRetryable{err}
}

// endOf returns why a run must end after a hub's answer; nil: it need not.
func endOf(err error) error {
	switch code(err) {
	case protocol.CodeFenced:
		return ErrFenced
	case protocol.CodeSessionRevoked:
		return ErrRevoked
	}
	return nil
}

type nonRetryable struct{ err error }

func (e *nonRetryable) Error() string { return e.err.Error() }
func (e *nonRetryable) Unwrap() error { return e.err }

func isNonRetryable(err error) bool {
	var final *nonRetryable
	return errors.As(err, &final)
}

// ended returns the cause if ctx has ended, else nil.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// Types of failures that the agent itself reports.
const (
	// ErrorTypeTimeout: the handler ran longer than its task's timeout.
	ErrorTypeTimeout = "timeout"
	// ErrorTypeNoBeacon: the handler gave no sign of life for its task's beacon timeout.
	ErrorTypeNoBeacon = api.ErrorTypeNoBeacon
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
	return cutText(named.ErrorType(), api.MaxErrorTypeBytes)
}

// cutText returns text as valid UTF-8 of at most limit bytes; it cuts the end.
func cutText(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// cutMiddle is cutText but keeps the beginning and the end, which have the most information in error texts.
func cutMiddle(text string, limit int) string {
	const mark = " […] "
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	head := cutText(text, (limit-len(mark))/2)
	from := len(text) - (limit - len(mark) - len(head))
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return head + mark + text[from:]
}
