// Package mcptool lets an agent call tools of servers that speak the Model Context Protocol (MCP), as tasks of type
// mcp-tool. A tool that is not idempotent is called once: nothing here calls it again, whatever happens.
package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// Type is the type of tasks that call a tool.
const Type = api.ToolTask

// keyName is the field of a call's _meta with the task's id, by which a server recognises a repeated call. A correction
// is another call: its number follows the id.
const keyName = "dev.mainstay/idempotency-key"

const (
	// maxResult bounds a result in bytes.
	maxResult = 256 << 10
	// openLimit bounds how long opening a session may take, and askLimit how long a server may take to say that it
	// still has one.
	openLimit = 30 * time.Second
	askLimit  = 5 * time.Second
)

// Types of failures. They are final, as is a wrong payload: the same call would end the same way, or do its work twice.
const (
	// ErrorTypeTool: the tool reported an error, or the server knows no such tool or arguments.
	ErrorTypeTool = task.ErrorTool
	// ErrorTypeUnknown: the connection was lost during a call of a tool that is not idempotent.
	ErrorTypeUnknown = "tool_outcome_unknown"
)

// Result is what a tool answered.
type Result struct {
	Content    []mcp.Content `json:"content,omitempty"`
	Structured any           `json:"structured,omitempty"`
}

// Tools are servers with the sessions that are open. Close ends these.
type Tools struct {
	servers  map[string]*connection
	duration metric.Float64Histogram // of calls
}

// New makes the tools of a file. Servers are started or called when a task needs them. opened learns with which of them
// a session is open.
func New(
	f *File, version string, log *slog.Logger, opened func(provider string, access api.ProviderAccess) error,
) *Tools {
	t := &Tools{servers: map[string]*connection{}, duration: newDuration()}
	for name, s := range f.Servers {
		t.servers[name] = &connection{Server: s, log: log.With("server", name), client: mcp.NewClient(
			&mcp.Implementation{Name: "mainstay-agent", Version: version}, nil),
			opened: func(open bool) {
				_ = opened(api.ToolCapability(name), api.ProviderAccess{Available: open}) // a preference
			}}
	}
	return t
}

func (f *File) names() []string { return slices.Sorted(maps.Keys(f.Servers)) }

// Capabilities are those of an agent with these servers.
func (f *File) Capabilities() []string {
	names := f.names()
	for i, name := range names {
		names[i] = api.ToolCapability(name)
	}
	return names
}

// Close ends all sessions, and the servers that were started.
func (t *Tools) Close() {
	for _, c := range t.servers {
		c.close()
	}
}

// Handle is the handler of tasks of type mcp-tool.
func (t *Tools) Handle(ctx context.Context, task *agent.Task) (result any, err error) {
	call, err := payload.ReadCall(task.Payload)
	if err != nil {
		return nil, agent.NonRetryable(err)
	}
	c := t.servers[call.Server]
	switch {
	case c == nil:
		return nil, agent.NonRetryable(fmt.Errorf("this agent has no such server of tools: require the capability %s",
			api.ToolCapability(call.Server)))
	case !slices.Contains(c.Tools, call.Tool):
		return nil, agent.NonRetryable(errors.New("the agent's operator does not allow this tool of the server"))
	}
	again := slices.Contains(c.Idempotent, call.Tool)
	if !again && !task.RetrySafety.NeedsPerson() {
		return nil, agent.NonRetryable(errors.New("the agent's operator does not list this tool as idempotent: " +
			"submit the task with retry_safety " + string(api.AtMostOnce)))
	}
	ctx, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("mainstay.dev/mainstay/internal/agenttasks/mcptool").Start(ctx,
		"execute_tool "+call.Tool, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", call.Tool),
			attribute.String("gen_ai.tool.call.id", task.ID), attribute.String("server.address", call.Server)))
	if id := task.Labels[api.LabelCorrelation]; id != "" {
		span.SetAttributes(attribute.String("mainstay.correlation_id", id))
	}
	begun := time.Now()
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, "the call failed")
		}
		span.End()
		t.record(ctx, call.Server, call.Tool, err, time.Since(begun))
	}()
	session, err := c.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a session with the server: %w", err)
	}
	key := task.ID
	if n := len(call.Feedback); n > 0 {
		key = fmt.Sprintf("%s.c%d", key, n+1)
	}
	if call.Arguments == nil {
		call.Arguments = json.RawMessage(`{}`)
	}
	answer, err := session.CallTool(ctx, &mcp.CallToolParams{Name: call.Tool, Arguments: call.Arguments,
		Meta: mcp.Meta{keyName: key}})
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok && wire.Code == jsonrpc.CodeInvalidParams {
		return nil, agent.NonRetryable(agent.Typed(ErrorTypeTool, errors.New(wire.Message))) // it has done nothing
	}
	if err != nil {
		err = c.explain(err)
		if again || ctx.Err() != nil {
			return nil, fmt.Errorf("call the tool: %w", err)
		}
		return nil, agent.NonRetryable(agent.Typed(ErrorTypeUnknown,
			fmt.Errorf("nobody knows whether the tool has done its work: %w", err)))
	}
	result = Result{Content: answer.Content, Structured: structured(answer.StructuredContent)}
	if answer.IsError {
		return nil, agent.NonRetryable(agent.Typed(ErrorTypeTool, errors.New(text(answer.Content))))
	}
	if data, err := json.Marshal(result); err != nil || len(data) > maxResult {
		return nil, agent.NonRetryable(fmt.Errorf("the tool's result has more than %d KiB: have the tool store it, "+
			"and return where", maxResult>>10))
	}
	return result, nil
}

// text is what a tool says of its error.
func text(content []mcp.Content) string {
	var parts []string
	for _, c := range content {
		if t, ok := c.(*mcp.TextContent); ok {
			parts = append(parts, t.Text)
		}
	}
	if len(parts) == 0 {
		return "the tool reported an error and does not say which"
	}
	return strings.Join(parts, "\n")
}

// connection is a server with its session.
type connection struct {
	*Server
	client *mcp.Client
	log    *slog.Logger
	opened func(open bool)

	mu      sync.Mutex
	session *mcp.ClientSession // nil: none is open
	program *program           // that was started last; nil: none
	opening *opening           // nil: none is under way
}

// opening looks for a session. All calls that need one meanwhile wait for it and get what it finds.
type opening struct {
	cancel  context.CancelFunc
	done    chan struct{} // closed when the rest is set
	session *mcp.ClientSession
	err     error
}

// open returns a session that the server still knows. A lost one is opened anew here, before a call; a call is never
// repeated for it. That a call failed is no sign of a lost session, and other tasks may have calls under way in it.
func (c *connection) open(ctx context.Context) (*mcp.ClientSession, error) {
	o := c.join(ctx)
	select {
	case <-o.done:
		return o.session, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// join returns the opening that is under way, or begins one. It does not end with the call that began it.
func (c *connection) join(ctx context.Context) *opening {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opening != nil {
		return c.opening
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	o := &opening{cancel: cancel, done: make(chan struct{})}
	c.opening = o
	go func() {
		defer cancel()
		o.session, o.err = c.ready(ctx)
		c.mu.Lock()
		c.opening = nil
		c.mu.Unlock()
		close(o.done)
	}()
	return o
}

// ready asks whether the server still knows the session, and else opens one. Only one opening calls it at a time.
func (c *connection) ready(ctx context.Context) (*mcp.ClientSession, error) {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session != nil {
		asking, cancel := context.WithTimeout(ctx, askLimit)
		defer cancel()
		err := session.Ping(asking, nil)
		if err == nil || ctx.Err() != nil {
			return session, ctx.Err()
		}
		c.replace(nil)
		go session.Close() // it waits for the calls under way
	}
	connecting, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	session, err := c.client.Connect(connecting, c.transport(), nil)
	if err != nil {
		return nil, c.explain(err)
	}
	c.replace(session)
	return session, nil
}

// close ends the session that is open, or is being opened.
func (c *connection) close() {
	c.mu.Lock()
	o := c.opening
	c.mu.Unlock()
	if o != nil {
		o.cancel()
		<-o.done
	}
	if session := c.replace(nil); session != nil {
		_ = session.Close()
	}
}

// replace sets the session, and returns the one before.
func (c *connection) replace(session *mcp.ClientSession) (before *mcp.ClientSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.session = c.session, session
	if before != session {
		c.opened(session != nil)
	}
	return before
}

// explain says of an error how the server's program ended, if it did.
func (c *connection) explain(err error) error {
	c.mu.Lock()
	started := c.program
	c.mu.Unlock()
	return started.explain(err)
}

func (c *connection) transport() mcp.Transport {
	if c.URL == "" {
		command := exec.Command(c.Command[0], c.Command[1:]...)
		command.Env = agent.CommandEnvironment(c.Env...)
		started := &program{command: command, log: c.log, ended: make(chan struct{})}
		c.mu.Lock()
		c.program = started
		c.mu.Unlock()
		return started
	}
	return &mcp.StreamableClientTransport{Endpoint: c.URL, HTTPClient: c.web(), DisableStandaloneSSE: true}
}

// web asks a server over HTTP. It follows redirects on the same host only, because requests are not for others.
func (c *connection) web() *http.Client {
	const most = 5
	own, _ := url.Parse(c.URL) // Read has checked it
	client := &http.Client{Transport: bounded{http.DefaultTransport},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.URL.Scheme != own.Scheme || r.URL.Host != own.Host || len(via) >= most {
				return http.ErrUseLastResponse
			}
			return nil
		}}
	if c.TokenEnv != "" {
		client.Transport = bounded{bearer{os.Getenv(c.TokenEnv)}}
	}
	return client
}

// maxHTTPAnswer bounds what a server answers to one request, in bytes. The SDK reads all of it before a result counts.
const maxHTTPAnswer = 4 << 20

// bounded ends answers that are too long, and keeps the digits of those that are not.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = exactBody(response, http.MaxBytesReader(nil, response.Body, maxHTTPAnswer))
	}
	return response, err
}

// bearer sends a token with each request.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}
