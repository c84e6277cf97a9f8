package app

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

	"mainstay.dev/mainstay/api"
)

const (
	// DefaultServer is where `mainstay dev` serves the API.
	DefaultServer = "http://127.0.0.1:8080"
	serverEnv     = "MAINSTAY_SERVER"
	// callLimit bounds one call beyond the time that it asks the server to wait.
	callLimit = 30 * time.Second
	maxAnswer = 64 << 20
)

// ServerFlag adds --server to the commands of a group.
func (a *App) ServerFlag(c *cobra.Command) {
	c.PersistentFlags().StringVar(&a.access.token, "token", "", "API token; better in $"+TokenEnv+", which other users do not see in the list of processes")
	a.access.Flags(c.PersistentFlags())
	c.PersistentFlags().StringVar(&a.server, "server", "", "URL of the REST API (default $"+serverEnv+", else "+DefaultServer+")")
}

// Client is a client of the REST API at --server, $MAINSTAY_SERVER or the default.
func (a *App) Client() (*Client, error) {
	source, address := "--server", a.server
	if address == "" {
		source, address = serverEnv, a.Getenv(serverEnv)
	}
	if address == "" {
		address = DefaultServer
	}
	base, err := baseURL(address)
	if err != nil {
		return nil, UsageError("%s: %w", source, err)
	}
	own := a.access
	own.Fill(a.Getenv)
	return own.newClient(base)
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

// Client calls the REST API.
type Client struct {
	Base      string
	token     string // empty: none is sent
	http      *http.Client
	transport *http.Transport
}

// NewClient calls the API at a base URL. Without a token it says nothing of who it is.
func NewClient(base, token string) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 32
	return &Client{Base: base, token: token, http: &http.Client{Transport: transport}, transport: transport}
}

// Call sends in as JSON (nil: no body) and returns the answer's JSON, also decoded into out unless that is nil. A refusal
// is a *ProblemError. hold is how long the request asks the server to hold the answer.
func (c *Client) Call(ctx context.Context, method, path string, hold time.Duration, in, out any) (json.RawMessage, error) {
	return c.send(ctx, method, path, hold, nil, in, out)
}

// CallIf is call for a change that holds only while the resource is of a revision; empty: of any.
func (c *Client) CallIf(ctx context.Context, revision, method, path string, in, out any) (json.RawMessage, error) {
	header := http.Header{}
	if revision != "" {
		header.Set("If-Match", `"`+strings.Trim(revision, `"`)+`"`)
	}
	return c.send(ctx, method, path, 0, header, in, out)
}

func (c *Client) send(ctx context.Context, method, path string, hold time.Duration, header http.Header, in, out any) (json.RawMessage, error) {
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
		return nil, c.Unreachable(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, c.Unreachable(ctx, err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, c.refused(response.StatusCode, data)
	}
	if len(data) > 0 && out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			return nil, fmt.Errorf("%s answered something that is not of the Mainstay API: %w", c.Base, err)
		}
	}
	return data, nil
}

// request makes a request that says who asks.
func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.Base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return request, nil
}

// Unreachable is the error for a call that brought no answer, or not all of it: why, and what to do.
func (c *Client) Unreachable(ctx context.Context, err error) error {
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
	return WithExit(ExitUnreachable, fmt.Errorf("cannot reach the control plane at %s: %w\n%s", c.Base, reason, hint))
}

func (c *Client) refused(status int, body []byte) error {
	problem := &ProblemError{}
	if bytes.Contains(body, []byte("HTTP request to an HTTPS server")) { // Go's own words
		return WithExit(ExitUnreachable, fmt.Errorf("%s speaks https: write the address so, in --server or %s", c.Base, serverEnv))
	}
	if json.Unmarshal(body, &problem.Problem) != nil || problem.Code == "" {
		return fmt.Errorf("%s answered %d %s, and not as Mainstay does: is this the address of its REST API?", c.Base, status, http.StatusText(status))
	}
	problem.Status = status
	return problem
}

// List reads the pages of a list until there are limit items (0: all). It returns them as they came and decoded, and
// whether there are more.
func List[T any](ctx context.Context, c *Client, path, plural string, query url.Values, limit int) (raw []json.RawMessage, items []T, more bool, err error) {
	raw, items = []json.RawMessage{}, []T{}
	if query == nil {
		query = url.Values{}
	}
	for {
		if limit > 0 {
			query.Set("page_size", strconv.Itoa(min(200, limit-len(items))))
		}
		var page map[string]json.RawMessage
		if _, err := c.Call(ctx, http.MethodGet, path+"?"+query.Encode(), 0, nil, &page); err != nil {
			return nil, nil, false, err
		}
		var pageRaw []json.RawMessage
		var pageItems []T
		var next string
		if err := errors.Join(decodeField(page[plural], &pageRaw), decodeField(page[plural], &pageItems), decodeField(page["next_page_token"], &next)); err != nil {
			return nil, nil, false, fmt.Errorf("%s answered something that is not of the Mainstay API: %w", c.Base, err)
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
	AgentsPath   = "/api/v1/agents"
	TasksPath    = "/api/v1/agents/tasks"
	BatchPath    = "/api/v1/agents/tasks/batch"
	ClustersPath = "/api/v1/agents/clusters"
	QueuePath    = "/api/v1/agents/queue"

	FailoversPath = "/api/v1/agents/failovers"
	DrainsPath    = "/api/v1/agents/drains"
	HealingPath   = "/api/v1/agents/healing"
	SchedulesPath = "/api/v1/agents/schedules"
	BulksPath     = "/api/v1/agents/tasks/bulk"
)

// Path is the path of one resource of a collection, or of what is below it.
func Path(collection, id string, more ...string) string {
	path := collection + "/" + url.PathEscape(id)
	for _, m := range more {
		path += "/" + m
	}
	return path
}

// PrintList reads a list, at most limit items (0: all), and prints it as JSON or by text.
func PrintList[T any](c *cobra.Command, a *App, path, plural string, query url.Values, limit int, text func(*App, []T) error) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	raw, items, more, err := List[T](c.Context(), client, path, plural, query, limit)
	if err != nil {
		return err
	}
	return a.Print(map[string]any{plural: raw}, func() error {
		if err := text(a, items); err != nil {
			return err
		}
		if more {
			fmt.Fprintln(a.Stderr, "There are more: raise --limit.")
		}
		return nil
	})
}

// Query makes a query of names and values, leaving out empty values.
func Query(pairs ...string) url.Values {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return query
}

// Stream opens a stream of events that goes on after the event with an id, unless that is empty. It is open until ctx
// ends.
func (c *Client) Stream(ctx context.Context, path, last string) (io.ReadCloser, error) {
	request, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/event-stream")
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.Unreachable(ctx, err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, c.Unreachable(ctx, err)
	}
	return nil, c.refused(response.StatusCode, data)
}

// Health asks /health, which answers an unhealthy process with 503 and the same body.
func (c *Client) Health(command *cobra.Command) (*api.Health, json.RawMessage, error) {
	request, err := c.request(command.Context(), http.MethodGet, "/health", nil)
	if err != nil {
		return nil, nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, nil, c.Unreachable(command.Context(), err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, nil, c.Unreachable(command.Context(), err)
	}
	health := &api.Health{}
	if json.Unmarshal(data, health) != nil || health.Status != "healthy" && health.Status != "unhealthy" {
		return nil, nil, c.refused(response.StatusCode, data)
	}
	return health, data, nil
}
