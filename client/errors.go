package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"mainstay.dev/mainstay/protocol"
)

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

// IsNotFound reports whether the API has answered that there is no such thing.
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
	ErrSpeaksHTTPS = errors.New("it speaks https")
	ErrSpeaksHTTP  = errors.New("it does not speak https")
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
	away := &UnreachableError{URL: c.base, Reason: err, cause: err}
	var operation *net.OpError
	switch {
	case context.Cause(ctx) != nil:
		away.Reason, away.lasting = context.Cause(ctx), true
	case errors.As(err, &operation):
		away.Reason = operation.Err
	}
	var distrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &distrusted):
		away.Reason, away.lasting = distrusted.Err, true
	case errors.As(err, &plain), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		// net/http makes the latter of the former
		away.Reason, away.lasting = ErrSpeaksHTTP, true
	}
	return away
}

// refused is the error of an answer that is none of success.
func (c *Client) refused(response *http.Response, body []byte) error {
	if bytes.Contains(body, []byte("HTTP request to an HTTPS server")) { // Go's own words
		return &UnreachableError{URL: c.base, Reason: ErrSpeaksHTTPS, cause: ErrSpeaksHTTPS, lasting: true}
	}
	e := &Error{base: c.base, body: body, RequestID: response.Header.Get("X-Request-Id"),
		RetryAfter: retryAfter(response.Header.Get("Retry-After"), time.Now())}
	if json.Unmarshal(body, &e.Problem) != nil {
		e.Problem = protocol.Problem{}
	}
	e.Status = response.StatusCode
	return e
}

// strange says that an answer could not be read.
func (c *Client) strange(err error) error {
	return fmt.Errorf("%s answered something that is not of the Mainstay API: %w", c.base, err)
}
