// Package modeltask runs tasks that call models. A task's attempt is one call of one provider: which one is in the
// attempt's payload. Nothing is tried again here, so that each call is an attempt that the task's history has. Keys are
// in the agent's environment, and in nothing that leaves it.
package modeltask

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// Type is the type of tasks that call models.
const Type = api.ModelTask

// maxAnswer bounds how much of an answer is read, in bytes.
const maxAnswer = 4 << 20

// Message is one message of a conversation.
type Message = api.ModelMessage

// Request is the payload of a task.
type Request struct{ payload.Model }

// Result is the result of a task.
type Result struct {
	api.ModelAnswer
	// Output is the text as JSON, if it is an object or a list.
	Output       json.RawMessage `json:"output,omitempty"`
	FinishReason string          `json:"finish_reason"`
	Invocation   Invocation      `json:"invocation"`
}

// Invocation is the record of a call.
type Invocation struct {
	ID            string    `json:"id,omitempty"` // the provider's
	Provider      string    `json:"provider"`
	Model         string    `json:"model"` // as it was asked for
	AnsweredBy    string    `json:"answered_by,omitempty"`
	Attempt       int       `json:"attempt"`
	StartedAt     time.Time `json:"started_at"`
	EndedAt       time.Time `json:"ended_at"`
	RequestSHA256 string    `json:"request_sha256"`
	mesh.Usage
}

// Models calls the providers of a file.
type Models struct {
	providers map[string]*Provider
	client    *http.Client
	limited   func(provider string, access api.ProviderAccess) error
	usage     usage
}

// New makes it. limited learns until when a provider limits the agent's rate.
func New(f *File, limited func(string, api.ProviderAccess) error) (*Models, error) {
	for name := range f.Providers {
		if err := limited(name, api.ProviderAccess{Available: true}); err != nil {
			return nil, err
		}
	}
	usage, err := newUsage()
	if err != nil {
		return nil, err
	}
	return &Models{providers: f.Providers, limited: limited, usage: usage, client: &http.Client{
		// A redirect would take the key elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// Handle runs one attempt: one call.
func (m *Models) Handle(ctx context.Context, task *agent.Task) (any, error) {
	model, err := payload.ReadModel(task.Payload)
	if err != nil {
		return nil, agent.NonRetryable(err)
	}
	r := Request{model}
	p := m.providers[r.Route.Provider]
	switch {
	case r.Route.Provider == "":
		return nil, agent.NonRetryable(errors.New("submit the task with routes"))
	case p == nil:
		return nil, failed(mesh.ErrorAuth, "this agent has no such provider")
	case len(p.Models) > 0 && !slices.Contains(p.Models, r.Route.Model):
		return nil, failed(mesh.ErrorInvalid, "the agent's operator does not allow this model of the provider")
	}
	ctx, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("mainstay.dev/mainstay/internal/agenttasks/modeltask").Start(ctx,
		"chat "+r.Route.Model, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("gen_ai.operation.name", "chat"),
			attribute.String("gen_ai.provider.name", r.Route.Provider),
			attribute.String("gen_ai.request.model", r.Route.Model)))
	defer span.End()
	if id := task.Labels[api.LabelCorrelation]; id != "" {
		span.SetAttributes(attribute.String("mainstay.correlation_id", id))
	}
	begun := time.Now()
	result, err := m.call(ctx, p, &r, task.Attempt)
	wrong := errorType(err)
	m.usage.record(ctx, &r.Route, &result.Invocation, wrong, time.Since(begun))
	if err != nil {
		if wrong != "" {
			span.SetAttributes(attribute.String("error.type", wrong))
		}
		span.SetStatus(codes.Error, "the call failed")
		return nil, err
	}
	i := &result.Invocation
	span.SetAttributes(attribute.String("gen_ai.response.id", i.ID),
		attribute.String("gen_ai.response.model", i.AnsweredBy),
		attribute.StringSlice("gen_ai.response.finish_reasons", []string{result.FinishReason}),
		attribute.Int("gen_ai.usage.input_tokens", i.InputTokens),
		attribute.Int("gen_ai.usage.output_tokens", i.OutputTokens))
	return result, nil
}

// call sends the request in the provider's form, and reads the answer.
func (m *Models) call(ctx context.Context, p *Provider, r *Request, attempt int) (Result, error) {
	r.correct()
	kind := kinds[p.Kind]
	body, err := json.Marshal(kind.body(r))
	if err != nil {
		return Result{}, agent.NonRetryable(fmt.Errorf("encode the request: %w", err))
	}
	sum, begun := sha256.Sum256(body), time.Now().UTC()
	data, err := m.send(ctx, p, r.Route.Provider, body)
	if err != nil {
		return Result{}, err
	}
	result, err := kind.read(data)
	if err != nil {
		return Result{}, err
	}
	i := &result.Invocation
	i.Provider, i.Model, i.Attempt = r.Route.Provider, r.Route.Model, attempt
	i.USD = p.Prices[i.Model].of(&i.Usage)
	i.StartedAt, i.EndedAt, i.RequestSHA256 = begun, time.Now().UTC(), hex.EncodeToString(sum[:])
	if text := bytes.TrimSpace([]byte(result.Text)); json.Valid(text) && (text[0] == '{' || text[0] == '[') {
		result.Output = text
	}
	return result, nil
}

// correct adds to the conversation what was wrong with the answers before.
func (r *Request) correct() {
	for _, f := range r.Feedback {
		var before Result
		if json.Unmarshal(f.Output, &before) == nil && before.Text != "" {
			r.Messages = append(r.Messages, Message{Role: "assistant", Content: before.Text})
		}
		r.Messages = append(r.Messages, mesh.NotAccepted(f.Errors))
	}
	if r.Note != "" {
		r.Messages = append(r.Messages, Message{Role: "user", Content: r.Note})
	}
}

// send sends a request once, and returns the body of an answer that is no error. Its results never hold the key.
func (m *Models) send(ctx context.Context, p *Provider, name string, body []byte) ([]byte, error) {
	key, kind := p.key(), kinds[p.Kind]
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(p.URL, "/")+kind.path,
		bytes.NewReader(body))
	if err != nil {
		return nil, agent.NonRetryable(fmt.Errorf("make the request: %w", err))
	}
	request.GetBody = nil // the transport repeats nothing either
	request.Header.Set("Content-Type", "application/json")
	kind.header(request.Header, key)
	response, err := m.client.Do(request)
	if err != nil {
		return nil, unreachable(ctx, err, key)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, unreachable(ctx, err, key)
	}
	data = []byte(without(key, string(data)))
	if response.StatusCode == http.StatusOK {
		return data, nil
	}
	wrong := errorOf(response.StatusCode, data)
	if wrong == mesh.ErrorRateLimited {
		until := retryAfter(response.Header.Get("Retry-After"), time.Now()).UTC()
		_ = m.limited(name, api.ProviderAccess{Available: true, RateLimitedUntil: &until})
	}
	return nil, failed(wrong, fmt.Sprintf("%s answered %d: %s", name, response.StatusCode, reason(data)))
}

// retryAfter reads the header Retry-After: seconds, or a time.
func retryAfter(header string, now time.Time) time.Time {
	const longest = 24 * time.Hour
	wait := mesh.Cooldown
	if at, err := http.ParseTime(header); err == nil {
		wait = at.Sub(now)
	} else if seconds, err := strconv.Atoi(header); err == nil {
		wait = time.Duration(min(max(seconds, 1), int(longest/time.Second))) * time.Second
	}
	return now.Add(min(wait, longest))
}

// unreachable is the error of a call without an answer. Its text names neither URL nor header.
func unreachable(ctx context.Context, err error, key string) error {
	var timeout net.Error
	if ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout() {
		return failed(mesh.ErrorTimeout, "no answer in time")
	}
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	return failed(mesh.ErrorUnavailable, "no connection: "+without(key, err.Error()))
}

// without is a text without the key. net/http repeats an answer that it cannot read.
func without(key, text string) string {
	if key == "" {
		return text
	}
	return strings.ReplaceAll(text, key, "[key]")
}

// failed is a failure of a type. A refusal is final: other providers are not asked either.
func failed(kind, why string) error {
	err := agent.Typed(kind, errors.New(why))
	if kind == mesh.ErrorRefused {
		return agent.NonRetryable(err)
	}
	return err
}

// answered is the error in an answer; both forms of APIs have it alike.
type answered struct {
	Error struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    any    `json:"code"`
	} `json:"error"`
}

// errorOf says what kind of failure an answer is.
func errorOf(status int, data []byte) string {
	var a answered
	_ = json.Unmarshal(data, &a) // an answer that is not JSON has no code
	text := strings.ToLower(fmt.Sprint(a.Error.Code, " ", a.Error.Type, " ", a.Error.Message))
	switch {
	case status == http.StatusTooManyRequests:
		return mesh.ErrorRateLimited
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired:
		return mesh.ErrorAuth
	case status == http.StatusRequestTimeout, status >= 500:
		return mesh.ErrorUnavailable
	case strings.Contains(text, "context_length"), strings.Contains(text, "too long"),
		status == http.StatusRequestEntityTooLarge:
		return mesh.ErrorContext
	case strings.Contains(text, "content_policy"), strings.Contains(text, "content_filter"):
		return mesh.ErrorRefused
	}
	return mesh.ErrorInvalid
}

// reason is why a provider refused a request, in its words, cut to 300 bytes.
func reason(data []byte) string {
	var a answered
	if json.Unmarshal(data, &a) != nil || a.Error.Message == "" {
		return "it does not say why"
	}
	return strings.ToValidUTF8(a.Error.Message[:min(len(a.Error.Message), 300)], "")
}
