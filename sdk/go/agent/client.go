package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"mainstay.dev/sdk/protocol"
)

const (
	dialTimeout = 3 * time.Second
	// callTimeout bounds a registration or a result; a hub gives Temporal 10 s for either.
	callTimeout = 15 * time.Second
	// bodyTimeout bounds reading an answer once it has begun.
	bodyTimeout = 30 * time.Second
	// maxAnswer bounds an answer, in bytes: many assignments of up to 1 MiB each.
	maxAnswer = 256 << 20
)

// client speaks HTTP to the hubs. Polls have connections of their own, so that the hub sees the session's connection
// close the moment this process dies.
type client struct {
	urls    []string
	agentID string
	polls   *http.Client
	calls   *http.Client
	hub     atomic.Int64 // index of the hub in use
}

func newClient(o Options) *client {
	return &client{urls: o.HubURLs, agentID: o.ID, polls: httpClient(o), calls: httpClient(o)}
}

// httpClient makes a client with a transport of its own, without HTTP/2, which would put polls and other requests on
// one connection.
func httpClient(o Options) *http.Client {
	dial := o.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: protocol.KeepAlive,
			Control: protocol.NoticeUnreachable}).DialContext
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         dial,
			TLSClientConfig:     o.TLS.Clone(),
			TLSHandshakeTimeout: dialTimeout,
			Protocols:           protocols, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute,
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (c *client) close() {
	c.polls.CloseIdleConnections()
	c.calls.CloseIdleConnections()
}

// current is the hub in use. rotate moves on from a failed one, unless another goroutine already has.
func (c *client) current() int       { return int(c.hub.Load()) }
func (c *client) rotate(failed int)  { c.hub.CompareAndSwap(int64(failed), int64(c.after(failed))) }
func (c *client) use(hub int)        { c.hub.Store(int64(hub)) }
func (c *client) after(hub int) int  { return (hub + 1) % len(c.urls) }
func (c *client) url(hub int) string { return c.urls[hub] }

// path fills in a path of the protocol.
func (c *client) path(pattern, taskID string) string {
	return strings.NewReplacer("{id}", url.PathEscape(c.agentID), "{task_id}", url.PathEscape(taskID)).Replace(pattern)
}

// request is one request to one hub.
type request struct {
	hub     int
	method  string
	path    string
	token   string
	body    any // nil: none
	headers map[string]string
	timeout time.Duration // until the answer begins
}

// send sends a request and reads the answer into out, unless out is nil. An answer that is no success is a *refusal.
// After any other error it is unknown whether the hub took the request.
func (c *client) send(ctx context.Context, via *http.Client, q request, out any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(q.timeout, func() { cancel(fmt.Errorf("%w within %s", errNoAnswer, q.timeout)) })
	defer slow.Stop()

	var body io.Reader
	if q.body != nil {
		data, err := json.Marshal(q.body)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, q.method, c.url(q.hub)+q.path, body)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range q.headers {
		req.Header.Set(name, value)
	}
	if q.token != "" {
		req.Header.Set("Authorization", "Bearer "+q.token)
	}
	resp, err := via.Do(req)
	if err != nil {
		if cause := ended(ctx); cause != nil {
			return cause
		}
		return &unreached{err}
	}
	defer func() { _ = resp.Body.Close() }()
	slow.Reset(bodyTimeout)
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		if protocol.IsHTTPSHint(data) {
			return &unreached{protocol.ErrSpeaksHTTPS}
		}
		refused := &refusal{status: resp.StatusCode}
		if json.Unmarshal(data, &refused.problem) != nil {
			refused.problem = protocol.Problem{}
		}
		return refused
	}
	if out == nil {
		return nil
	}
	if polled, piecewise := out.(*protocol.ReadPolled); piecewise {
		err = polled.Read(data)
	} else {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

// unreached is the error of a request without an answer. Its text has no address, which may have a password, and no
// port of this end: the same cause has the same text.
type unreached struct{ error }

// Error implements error.
func (e *unreached) Error() string {
	_, reason := protocol.Unreached(e.error)
	return reason.Error()
}

// Unwrap returns the cause.
func (e *unreached) Unwrap() error { return e.error }

// remedy is what to do about an error of a hub; empty: nothing in particular.
func remedy(err error) string {
	away, ok := errors.AsType[*unreached](err)
	if !ok {
		return ""
	}
	_, reason := protocol.Unreached(away.error)
	var distrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(reason, protocol.ErrSpeaksHTTPS):
		return "write the hub's address with https://"
	case errors.Is(reason, protocol.ErrSpeaksHTTP):
		return "write the hub's address with http://"
	case errors.As(err, &distrusted):
		return "name the file with the authority of its certificate, with --ca or MAINSTAY_CA"
	}
	return "is a hub running there, and is this its address?"
}

// refusal is an answer that is no success.
type refusal struct {
	status  int
	problem protocol.Problem
}

func (e *refusal) Error() string {
	switch {
	case e.problem.Code == "":
		return fmt.Sprintf("status %d without a problem body: is this the URL of a hub?", e.status)
	case e.problem.Detail == "":
		return fmt.Sprintf("status %d %s", e.status, e.problem.Code)
	}
	return fmt.Sprintf("%s (%d %s)", e.problem.Detail, e.status, e.problem.Code)
}

// code is the stable code of a hub's refusal, or "".
func code(err error) string {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.problem.Code
	}
	return ""
}

// isFinal reports whether repeating a refused request is useless. An answer without a code is not from a hub, but from
// something like a proxy.
func isFinal(err error) bool {
	var refused *refusal
	if !errors.As(err, &refused) || refused.problem.Code == "" {
		return false
	}
	switch refused.status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return refused.status >= 400 && refused.status < 500
}

// errNoAnswer: the hub took the connection, and then too long.
var errNoAnswer = errors.New("no answer")

// broke reports whether a connection to a hub broke that may well be back at once: not one that could not be opened,
// and not one whose other end is silent or out of reach.
func broke(err error) bool {
	var refused *refusal
	var operation *net.OpError
	return err != nil && !errors.As(err, &refused) && !errors.Is(err, errNoAnswer) &&
		!errors.Is(err, syscall.ETIMEDOUT) && (!errors.As(err, &operation) || operation.Op != "dial")
}

// heard reports whether a hub answered, other than with a failure of its own.
func heard(err error) bool { return err == nil || isFinal(err) }
