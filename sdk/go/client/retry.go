package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/sdk/protocol"
)

const (
	defaultPatience = 30 * time.Second
	// firstPause is the pause before the first repetition, on average; it doubles each time, up to maxPause.
	firstPause = 500 * time.Millisecond
	maxPause   = 4 * time.Second
)

// send sends a request, and repeats it while that is safe and may help.
func (c *Client) send(ctx context.Context, r *request) ([]byte, error) {
	body := r.text
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
	}
	pause, left := firstPause, c.patience
	for try := 1; ; try, pause = try+1, min(2*pause, maxPause) {
		data, err := c.once(ctx, r, body)
		if left < c.patience && r.removes && IsNotFound(err) {
			return nil, nil // an earlier try did it, and its answer was lost
		}
		if err == nil || left <= 0 || c.retries > 0 && try > c.retries || !r.repeatable() {
			return data, err
		}
		again, after := transient(err)
		wait := max(min(left, pause/2+rand.N(pause)), after)
		deadline, limited := ctx.Deadline()
		if !again || wait > left || limited && time.Until(deadline) <= wait || ctx.Err() != nil {
			return nil, err
		}
		if left -= wait; c.away != nil {
			c.away(err)
		}
		if err := c.pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// repeatable reports whether a request has the same effect once and twice. A change of one revision has not: the first
// makes another revision.
func (r *request) repeatable() bool {
	switch r.method {
	case http.MethodGet, http.MethodHead:
		return true
	case http.MethodPut, http.MethodDelete:
		return r.header.Get("If-Match") == ""
	}
	return r.keyed
}

// transient reports whether a repetition may help, and the least time that the server wants to have passed.
func transient(err error) (again bool, after time.Duration) {
	if away, ok := errors.AsType[*UnreachableError](err); ok {
		return !away.lasting, 0
	}
	var refused *Error
	if !errors.As(err, &refused) {
		return false, 0
	}
	switch refused.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, refused.RetryAfter
	}
	return false, 0
}

// retryAfter reads the header, which holds seconds or a date. 0: it says nothing.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(max(0, seconds)) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// sleep waits for d; it answers an error when ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Error is a refusal: an RFC 9457 answer of the API. Code is empty when something else than Mainstay answered.
type Error struct {
	protocol.Problem
	// RequestID names the request in the server's logs.
	RequestID string
	// RetryAfter is how long the server asks to wait before another try; 0: it does not say.
	RetryAfter time.Duration

	base string
	body []byte
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.Code == "":
		return fmt.Sprintf("%s answered %d %s, and not as Mainstay does: is this the address of its REST API?", e.base,
			e.Status, http.StatusText(e.Status))
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

// IsNotFound reports whether the API has answered that the thing does not exist.
func IsNotFound(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound && refused.Code != ""
}

// UnreachableError says that the API did not answer.
type UnreachableError struct {
	URL string
	// Reason is for people; Unwrap returns what it was made of.
	Reason error

	cause   error
	lasting bool // another try would end as this one
}

// The reasons when an address has the wrong scheme.
var (
	ErrSpeaksHTTPS = protocol.ErrSpeaksHTTPS
	ErrSpeaksHTTP  = protocol.ErrSpeaksHTTP
)

// Error implements error.
func (e *UnreachableError) Error() string {
	if errors.Is(e.Reason, ErrSpeaksHTTPS) {
		return e.URL + " speaks https"
	}
	return fmt.Sprintf("cannot reach the control plane at %s: %s", e.URL, e.Reason)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.cause }

// unreachable says why nothing answered. A caller that has gone away gets context.Canceled.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return context.Canceled
	}
	away := &UnreachableError{URL: protocol.ShownURL(c.base), cause: err}
	if away.lasting, away.Reason = protocol.Unreached(err); context.Cause(ctx) != nil {
		away.Reason, away.lasting = context.Cause(ctx), true
	}
	return away
}

// refused is the error for an answer without success.
func (c *Client) refused(response *http.Response, body []byte) error {
	if protocol.IsHTTPSHint(body) {
		return &UnreachableError{URL: protocol.ShownURL(c.base), Reason: ErrSpeaksHTTPS, cause: ErrSpeaksHTTPS,
			lasting: true}
	}
	e := &Error{base: protocol.ShownURL(c.base), body: body, RequestID: response.Header.Get("X-Request-Id"),
		RetryAfter: retryAfter(response.Header.Get("Retry-After"), time.Now())}
	if json.Unmarshal(body, &e.Problem) != nil {
		e.Problem = protocol.Problem{}
	}
	e.Status = response.StatusCode
	return e
}

// strange says that an answer could not be read.
func (c *Client) strange(err error) error {
	return fmt.Errorf("%s answered something that is not of the Mainstay API: %w", protocol.ShownURL(c.base), err)
}
