package main

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
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	defaultServer = "http://127.0.0.1:8080"
	serverEnv     = "MAINSTAY_SERVER"
	// callLimit bounds one call beyond the time that it asks the server to wait.
	callLimit = 30 * time.Second
	maxAnswer = 64 << 20
)

// serverFlag adds --server to the commands of a group.
func (a *app) serverFlag(c *cobra.Command) {
	c.PersistentFlags().StringVar(&a.access.token, "token", "", "API token; better in $"+tokenEnv+", which other users do not see in the list of processes")
	a.access.tlsFlags(c.PersistentFlags())
	c.PersistentFlags().StringVar(&a.server, "server", "", "URL of the REST API (default $"+serverEnv+", else "+defaultServer+")")
}

// client is a client of the REST API at --server, $MAINSTAY_SERVER or the default.
func (a *app) client() (*apiClient, error) {
	source, address := "--server", a.server
	if address == "" {
		source, address = serverEnv, a.getenv(serverEnv)
	}
	if address == "" {
		address = defaultServer
	}
	base, err := baseURL(address)
	if err != nil {
		return nil, usageError("%s: %w", source, err)
	}
	c := newAPIClient(base)
	own := a.access
	own.fill(a.getenv)
	return c, own.apply(c)
}

// baseURL reads host:port or a URL.
func baseURL(address string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("must be like http://127.0.0.1:8080")
	}
	return strings.TrimRight(address, "/"), nil
}

// apiClient calls the REST API.
type apiClient struct {
	base      string
	token     string // empty: none is sent
	http      *http.Client
	transport *http.Transport
}

func newAPIClient(base string) *apiClient {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 32
	return &apiClient{base: base, http: &http.Client{Transport: transport}, transport: transport}
}

// call sends in as JSON (nil: no body) and returns the answer's JSON, also decoded into out unless that is nil. A refusal
// is a *problemError. hold is how long the request asks the server to hold the answer.
func (c *apiClient) call(ctx context.Context, method, path string, hold time.Duration, in, out any) (json.RawMessage, error) {
	return c.send(ctx, method, path, hold, nil, in, out)
}

// ifRevision is call for a change that holds only while the resource is of a revision; empty: of any.
func (c *apiClient) ifRevision(ctx context.Context, revision, method, path string, in, out any) (json.RawMessage, error) {
	header := http.Header{}
	if revision != "" {
		header.Set("If-Match", `"`+strings.Trim(revision, `"`)+`"`)
	}
	return c.send(ctx, method, path, 0, header, in, out)
}

func (c *apiClient) send(ctx context.Context, method, path string, hold time.Duration, header http.Header, in, out any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit+hold, fmt.Errorf("no answer within %s", callLimit+hold))
	defer cancel()
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	request, err := c.request(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, c.refused(response.StatusCode, data)
	}
	if len(data) > 0 && out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			return nil, fmt.Errorf("%s answered something that is not of the Mainstay API: %w", c.base, err)
		}
	}
	return data, nil
}

// request makes a request that says who asks.
func (c *apiClient) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return request, nil
}

func (c *apiClient) unreachable(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return context.Canceled
	}
	var operation *net.OpError
	reason := err
	switch {
	case context.Cause(ctx) != nil:
		reason = context.Cause(ctx)
	case errors.As(err, &operation):
		reason = operation.Err
	}
	hint := "Is `mainstay dev` running? Set its address with --server or " + serverEnv
	var distrusted *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &distrusted):
		reason, hint = distrusted.Err, "Its certificate is not trusted here. Name the file with its authority with --ca or "+caEnv
	case errors.As(err, &plain), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"): // net/http makes the latter of the former
		reason, hint = errors.New("it does not speak https"), "Write its address with http:// in --server or "+serverEnv
	}
	return withExit(exitUnreachable, fmt.Errorf("cannot reach the control plane at %s: %w\n%s", c.base, reason, hint))
}

func (c *apiClient) refused(status int, body []byte) error {
	problem := &problemError{}
	if bytes.Contains(body, []byte("HTTP request to an HTTPS server")) { // Go's own words
		return withExit(exitUnreachable, fmt.Errorf("%s speaks https: write the address so, in --server or %s", c.base, serverEnv))
	}
	if json.Unmarshal(body, &problem.Problem) != nil || problem.Code == "" {
		return fmt.Errorf("%s answered %d %s, and not as Mainstay does: is this the address of its REST API?", c.base, status, http.StatusText(status))
	}
	problem.Status = status
	return problem
}

// list reads the pages of a list until there are limit items (0: all). It returns them as they came and decoded, and
// whether there are more.
func list[T any](ctx context.Context, c *apiClient, path, plural string, query url.Values, limit int) (raw []json.RawMessage, items []T, more bool, err error) {
	raw, items = []json.RawMessage{}, []T{}
	if query == nil {
		query = url.Values{}
	}
	for {
		if limit > 0 {
			query.Set("page_size", strconv.Itoa(min(200, limit-len(items))))
		}
		var page map[string]json.RawMessage
		if _, err := c.call(ctx, http.MethodGet, path+"?"+query.Encode(), 0, nil, &page); err != nil {
			return nil, nil, false, err
		}
		var pageRaw []json.RawMessage
		var pageItems []T
		var next string
		if err := errors.Join(decodeField(page[plural], &pageRaw), decodeField(page[plural], &pageItems), decodeField(page["next_page_token"], &next)); err != nil {
			return nil, nil, false, fmt.Errorf("%s answered something that is not of the Mainstay API: %w", c.base, err)
		}
		raw, items = append(raw, pageRaw...), append(items, pageItems...)
		if next == "" || limit > 0 && len(items) >= limit {
			return raw, items, next != "", nil
		}
		query.Set("page_token", next)
	}
}

func decodeField(raw json.RawMessage, into any) error {
	if raw == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// Paths of the API.
const (
	agentsPath   = "/api/v1/agents"
	tasksPath    = "/api/v1/agents/tasks"
	batchPath    = "/api/v1/agents/tasks/batch"
	clustersPath = "/api/v1/agents/clusters"
	queuePath    = "/api/v1/agents/queue"
)

func pathOf(collection, id string, more ...string) string {
	path := collection + "/" + url.PathEscape(id)
	for _, m := range more {
		path += "/" + m
	}
	return path
}
