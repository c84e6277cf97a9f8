// Package client is the Go client of the REST API: a method for each operation, by subject, as in c.Tasks.Get. It
// repeats requests that are safe to repeat when the control plane is away or busy for a moment.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"
)

const (
	// callLimit bounds one request beyond the time that it asks the server to wait.
	callLimit = 30 * time.Second
	// maxAnswer bounds an answer in bytes.
	maxAnswer = 64 << 20
)

// Options say where the API is and who asks.
type Options struct {
	// URL is the address of the REST API, such as http://127.0.0.1:8080.
	URL string
	// Token is the API token; empty: none is sent.
	Token string
	// HTTPClient sends the requests. Default: one of its own, which trusts the authorities of the system.
	HTTPClient *http.Client
	// Patience is how long a request that is safe to repeat is repeated while the control plane is away or busy.
	// Default 30 s; below 0: nothing is repeated.
	Patience time.Duration
	// MaxRetries bounds how often such a request is repeated. Default: only its patience bounds that.
	MaxRetries int
}

// Client calls the REST API; New makes it. Methods may be used at the same time. They answer an *Error for what the API
// refuses, and an *UnreachableError when it does not answer.
type Client struct {
	Tasks     Tasks
	Bulks     Bulks
	Agents    Agents
	Failovers Failovers
	Drains    Drains
	Clusters  Clusters
	Scalings  Scalings
	Schedules Schedules
	Jobs      Jobs
	Runs      Runs
	Arrays    Arrays
	Services  Services
	Inbound   Inbound
	Healing   Healing
	Tokens    Tokens

	base     string
	token    string
	http     *http.Client
	patience time.Duration
	retries  int         // 0: no bound
	away     func(error) // called before each repetition; nil: nobody listens
	raw      *json.RawMessage
	pause    func(context.Context, time.Duration) error
}

// The operations of the API, by subject.
type (
	// Tasks are tasks, their log and the queue.
	Tasks struct{ c *Client }
	// Bulks are operations on many tasks.
	Bulks struct{ c *Client }
	// Agents are agents, and the actions on one.
	Agents struct{ c *Client }
	// Failovers are the records of failovers.
	Failovers struct{ c *Client }
	// Drains are the records of drains.
	Drains struct{ c *Client }
	// Clusters are clusters with their members, lanes, targets and states.
	Clusters struct{ c *Client }
	// Scalings are the records of what was done to keep the number of agents.
	Scalings struct{ c *Client }
	// Schedules make tasks again and again.
	Schedules struct{ c *Client }
	// Jobs are definitions of work in steps.
	Jobs struct{ c *Client }
	// Runs are runs of jobs.
	Runs struct{ c *Client }
	// Arrays are many small tasks in one.
	Arrays struct{ c *Client }
	// Inbound are events from outside.
	Inbound struct{ c *Client }
	// Services are what instances of jobs offer.
	Services struct{ c *Client }
	// Healing is the healing cycle.
	Healing struct{ c *Client }
	// Tokens are tokens of the API and of agents.
	Tokens struct{ c *Client }
)

// withSubjects gives the client its subjects.
func (c *Client) withSubjects() *Client {
	c.Tasks, c.Bulks, c.Agents, c.Failovers, c.Drains = Tasks{c}, Bulks{c}, Agents{c}, Failovers{c}, Drains{c}
	c.Clusters, c.Scalings, c.Schedules = Clusters{c}, Scalings{c}, Schedules{c}
	c.Jobs, c.Runs, c.Arrays = Jobs{c}, Runs{c}, Arrays{c}
	c.Services = Services{c}
	c.Inbound, c.Healing, c.Tokens = Inbound{c}, Healing{c}, Tokens{c}
	return c
}

// New makes a client. It connects to nothing yet.
func New(o Options) (*Client, error) {
	base := strings.TrimRight(o.URL, "/")
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("must be like http://127.0.0.1:8080")
	}
	c := &Client{base: base, token: o.Token, http: o.HTTPClient, patience: o.Patience, retries: o.MaxRetries,
		pause: sleep}
	if c.http == nil {
		c.http = &http.Client{Transport: NewTransport()}
	}
	if c.http.CheckRedirect == nil {
		own := *c.http
		own.CheckRedirect = stayWithHost
		c.http = &own
	}
	if o.Patience == 0 {
		c.patience = defaultPatience
	}
	return c.withSubjects(), nil
}

// stayWithHost follows redirections that the token may follow: to the same host and port, and not from https to http.
func stayWithHost(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	if r.URL.Host != first.Host || r.URL.Scheme != first.Scheme && r.URL.Scheme != "https" || len(via) > 10 {
		return http.ErrUseLastResponse
	}
	return nil
}

// NewTransport is the default transport of a client, for those that change it.
func NewTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 32
	return transport
}

// URL is the address of the API, without a slash at its end.
func (c *Client) URL() string { return c.base }

// Raw returns a client that also puts the JSON of each answer into raw, as it came: for a list the items taken, for a
// stream the event. Use it in one goroutine.
func (c *Client) Raw(raw *json.RawMessage) *Client {
	kept := *c
	kept.raw = raw
	return kept.withSubjects()
}

// As returns a client that shows another API token; empty: none.
func (c *Client) As(token string) *Client {
	other := *c
	other.token = token
	return other.withSubjects()
}

// Once returns a client that repeats nothing.
func (c *Client) Once() *Client { return c.Patient(0, nil) }

// Patient returns a client with another patience. It calls away, if that is not nil, before each repetition.
func (c *Client) Patient(patience time.Duration, away func(error)) *Client {
	kept := *c
	kept.patience, kept.away = patience, away
	return kept.withSubjects()
}

// request is one call of the API.
type request struct {
	method, path string
	query        url.Values
	header       http.Header
	body         any           // nil: none
	text         []byte        // a body that is sent as it is
	hold         time.Duration // how long the server may take beyond callLimit
	keyed        bool          // a POST that may be repeated: it names what it makes
	removes      bool          // a DELETE without an answer: after a lost answer, not found means done
}

// do sends a request and decodes its answer.
func do[T any](ctx context.Context, c *Client, r request) (*T, error) {
	data, err := c.send(ctx, &r)
	if err != nil {
		return nil, err
	}
	out := new(T)
	if len(data) > 0 {
		if err := json.Unmarshal(data, out); err != nil {
			return nil, c.strange(err)
		}
	}
	if c.raw != nil {
		*c.raw = data
	}
	return out, nil
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (*T, error) {
	hold, _ := time.ParseDuration(query.Get("wait"))
	return do[T](ctx, c, request{method: http.MethodGet, path: path, query: query, hold: hold})
}

func post[T any](ctx context.Context, c *Client, path string, body any) (*T, error) {
	return do[T](ctx, c, request{method: http.MethodPost, path: path, body: body})
}

// none is an answer without a body, or one that nobody reads.
type none = json.RawMessage

// once sends a request one time.
func (c *Client) once(ctx context.Context, r *request, body []byte) ([]byte, error) {
	limit := callLimit + r.hold
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	response, err := c.open(ctx, r, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return data, nil
}

// open sends a request and returns the answer, whose body is not read yet.
func (c *Client) open(ctx context.Context, r *request, body []byte) (*http.Response, error) {
	address := c.base + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	sent, err := http.NewRequestWithContext(ctx, r.method, address, reader)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	for name, values := range r.header {
		sent.Header[name] = values
	}
	if c.token != "" {
		sent.Header.Set("Authorization", "Bearer "+c.token)
	}
	if body != nil && sent.Header.Get("Content-Type") == "" {
		sent.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(sent)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if response.StatusCode >= 200 && response.StatusCode <= 299 {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return nil, c.refused(response, data)
}

// root begins the paths of the API.
const root = "/api/v1/agents"

// path joins a path below root; slashes within a part are escaped, so a part cannot break out.
func path(parts ...string) string {
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(append([]string{root}, parts...), "/")
}

// values makes a query of names and values; zero values are left out, of a slice each is added.
func values(pairs ...any) url.Values {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name := pairs[i].(string)
		switch v := pairs[i+1].(type) {
		case []string:
			for _, one := range v {
				query.Add(name, one)
			}
		case time.Time:
			if !v.IsZero() {
				query.Set(name, v.Format(time.RFC3339Nano))
			}
		default:
			if !reflect.ValueOf(v).IsZero() {
				query.Set(name, fmt.Sprint(v))
			}
		}
	}
	return query
}

// ifMatch is the header of a change that holds only while settings are of a revision; empty: of any.
func ifMatch(revision string) http.Header {
	if revision == "" {
		return nil
	}
	return http.Header{"If-Match": {`"` + strings.Trim(revision, `"`) + `"`}}
}
