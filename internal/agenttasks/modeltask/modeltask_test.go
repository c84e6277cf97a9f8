package modeltask

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

const openAnswer = `{"id":"c-1","model":"gpt-mini-1","choices":[{"message":{"content":"{\"n\": 1}"},"finish_reason":"stop"}],
	"usage":{"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}`

const anthropicAnswer = `{"id":"m-1","model":"claude-1","content":[{"type":"text","text":"hel"},{"type":"text","text":"lo"}],
	"stop_reason":"end_turn","usage":{"input_tokens":7,"output_tokens":2,"cache_read_input_tokens":1}}`

// ask has one provider answer one task.
func ask(t *testing.T, kind, payload string, answer http.HandlerFunc) (*Result, string, map[string]api.ProviderAccess) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	known := map[string]api.ProviderAccess{}
	models, err := New(&File{Providers: map[string]*Provider{"p": {Kind: kind, URL: server.URL, KeyEnv: "MODEL_TEST_KEY",
		Prices: map[string]Price{"m": {In: 1000, Out: 2000}}}}},
		func(name string, access api.ProviderAccess) error { known[name] = access; return nil })
	require.NoError(t, err)
	got, err := models.Handle(t.Context(), &agent.Task{Attempt: 2, Payload: json.RawMessage(payload)})
	if err != nil {
		require.NotContains(t, err.Error(), os.Getenv("MODEL_TEST_KEY"))
		var typed interface{ ErrorType() string }
		require.ErrorAs(t, err, &typed, err.Error())
		return nil, typed.ErrorType(), known
	}
	result := got.(Result)
	return &result, "", known
}

const hello = `{"route":{"provider":"p","model":"m"},"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}]`

// TestCallsAreMeasured reads the metrics of a call that succeeds and of one that fails.
func TestCallsAreMeasured(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	before := otel.GetMeterProvider()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	t.Setenv("MODEL_TEST_KEY", "secret-key-2")
	_, wrong, _ := ask(t, "openai", hello+`}`, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(openAnswer)) })
	require.Empty(t, wrong)
	_, wrong, _ = ask(t, "openai", hello+`}`, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	require.Equal(t, mesh.ErrorUnavailable, wrong)
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	got := map[string]float64{} // sums of tokens, and counts of calls
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Histogram[int64]:
			for _, point := range data.DataPoints {
				direction, _ := point.Attributes.Value("gen_ai.token.type")
				model, _ := point.Attributes.Value("gen_ai.response.model")
				got[m.Name+" "+direction.AsString()+" "+model.AsString()] = float64(point.Sum)
			}
		case metricdata.Histogram[float64]:
			for _, point := range data.DataPoints {
				kind, _ := point.Attributes.Value("error.type")
				got[m.Name+" "+kind.AsString()] = float64(point.Count)
			}
		}
	}
	require.Equal(t, map[string]float64{
		"gen_ai.client.token.usage input gpt-mini-1":   12,
		"gen_ai.client.token.usage output gpt-mini-1":  3,
		"gen_ai.client.operation.duration ":            1,
		"gen_ai.client.operation.duration unavailable": 1,
	}, got)
}

func TestModelsAreCalled(t *testing.T) {
	t.Setenv("MODEL_TEST_KEY", "secret-key-1")
	var sent map[string]any
	read := func(w http.ResponseWriter, r *http.Request, answer string) {
		sent = map[string]any{}
		require.NoError(t, json.NewDecoder(r.Body).Decode(&sent))
		_, _ = w.Write([]byte(answer))
	}
	got, _, _ := ask(t, "openai", hello+`,"feedback":[{"errors":["too short"],"output":{"text":"no"}}],"note":"in French"}`,
		func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, "/chat/completions", r.URL.Path)
			require.Equal(t, "Bearer secret-key-1", r.Header.Get("Authorization"))
			read(w, r, openAnswer)
		})
	require.JSONEq(t, `{"n": 1}`, string(got.Output))
	require.Equal(t, "stop", got.FinishReason)
	i := got.Invocation
	require.Equal(t, []any{"c-1", "p", "m", "gpt-mini-1", 2, 12, 3, 4}, []any{i.ID, i.Provider, i.Model, i.AnsweredBy, i.Attempt,
		i.InputTokens, i.OutputTokens, i.CachedTokens})
	require.Len(t, i.RequestSHA256, 64)
	messages := sent["messages"].([]any)
	require.Len(t, messages, 5)
	require.Equal(t, map[string]any{"role": "assistant", "content": "no"}, messages[2])
	require.Contains(t, messages[3].(map[string]any)["content"], "- too short")
	require.Equal(t, map[string]any{"role": "user", "content": "in French"}, messages[4])

	got, _, _ = ask(t, "anthropic", hello+`}`, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/v1/messages", r.URL.Path)
		require.Equal(t, "secret-key-1", r.Header.Get("X-Api-Key"))
		read(w, r, anthropicAnswer)
	})
	require.Equal(t, "hello", got.Text)
	require.Nil(t, got.Output)
	require.Equal(t, "be brief", sent["system"])
	require.Len(t, sent["messages"], 1)
	require.EqualValues(t, 4096, sent["max_tokens"])
	require.Equal(t, 7, got.Invocation.InputTokens)
	require.InDelta(t, 0.011, got.Invocation.USD, 1e-9, "7 tokens in, 2 out")
}

// TestModelsCallTools has each form of API ask for tools, and learn what they said.
func TestModelsCallTools(t *testing.T) {
	t.Setenv("MODEL_TEST_KEY", "secret-key-1")
	const payload = hello + `,{"role":"assistant","content":"","tool_calls":[{"id":"c1","name":"find","arguments":{"q":1}},
		{"id":"c2","name":"find","arguments":"{oops"}]},{"role":"tool","tool_call_id":"c1","content":"T-7"},
		{"role":"tool","tool_call_id":"c2","content":"no object","failed":true},{"role":"user","content":"go on"}],
		"tools":[{"name":"find","description":"finds","arguments":{"type":"object","required":["q"]},"server":"desk"},{"name":"drop"}]}`
	for kind, c := range map[string]struct{ answer, want, messages, tools string }{
		"openai": {`{"choices":[{"message":{"content":null,"tool_calls":[
			{"id":"c3","type":"function","function":{"name":"find","arguments":"{\"q\":2}"}},
			{"id":"c4","type":"function","function":{"name":"drop","arguments":""}},
			{"id":"c5","type":"function","function":{"name":"drop","arguments":"{oops"}},
			{"id":"c6","type":"function","function":{"name":"drop","arguments":{"n":1}}}]},"finish_reason":"tool_calls"}]}`,
			`[{"id":"c3","name":"find","arguments":{"q":2}},{"id":"c4","name":"drop","arguments":{}},
			{"id":"c5","name":"drop","arguments":"{oops"},{"id":"c6","name":"drop","arguments":{"n":1}}]`,
			`[{"role":"system","content":"be brief"},{"role":"user","content":"hi"},{"role":"assistant","content":"","tool_calls":[
			{"id":"c1","type":"function","function":{"name":"find","arguments":"{\"q\":1}"}},
			{"id":"c2","type":"function","function":{"name":"find","arguments":"{oops"}}]},
			{"role":"tool","tool_call_id":"c1","content":"T-7"},{"role":"tool","tool_call_id":"c2","content":"error: no object"},
			{"role":"user","content":"go on"}]`,
			`[{"type":"function","function":{"name":"find","description":"finds","parameters":{"type":"object","required":["q"]}}},
			{"type":"function","function":{"name":"drop","description":"","parameters":{"type":"object"}}}]`},
		"anthropic": {`{"content":[{"type":"text","text":"I look"},{"type":"tool_use","id":"c3","name":"find","input":{"q":2}}],
			"stop_reason":"tool_use"}`, `[{"id":"c3","name":"find","arguments":{"q":2}}]`,
			`[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"find","input":{"q":1}},
			{"type":"tool_use","id":"c2","name":"find","input":{}}]},{"role":"user","content":[
			{"type":"tool_result","tool_use_id":"c1","content":"T-7","is_error":false},
			{"type":"tool_result","tool_use_id":"c2","content":"no object","is_error":true}]},{"role":"user","content":"go on"}]`,
			`[{"name":"find","description":"finds","input_schema":{"type":"object","required":["q"]}},
			{"name":"drop","description":"","input_schema":{"type":"object"}}]`},
	} {
		var sent struct{ Messages, Tools json.RawMessage }
		got, _, _ := ask(t, kind, strings.Replace(payload, `"}],{"role"`, `"},{"role"`, 1), func(w http.ResponseWriter, r *http.Request) {
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&sent))
			_, _ = w.Write([]byte(c.answer))
		})
		require.JSONEq(t, c.messages, string(sent.Messages), kind)
		require.JSONEq(t, c.tools, string(sent.Tools), kind)
		calls, err := json.Marshal(got.ToolCalls)
		require.NoError(t, err)
		require.JSONEq(t, c.want, string(calls), kind)
	}
}

func TestFailuresOfCalls(t *testing.T) {
	t.Setenv("MODEL_TEST_KEY", "secret-key-1")
	for name, c := range map[string]struct {
		kind   string
		status int
		body   string
		want   string
	}{
		"rate":         {"openai", 429, `{}`, mesh.ErrorRateLimited},
		"down":         {"openai", 500, `oops`, mesh.ErrorUnavailable},
		"overloaded":   {"anthropic", 529, `{"error":{"type":"overloaded_error"}}`, mesh.ErrorUnavailable},
		"key":          {"openai", 401, `{"error":{"message":"Incorrect API key provided: secret-key-1"}}`, mesh.ErrorAuth},
		"long":         {"openai", 400, `{"error":{"code":"context_length_exceeded","message":"x"}}`, mesh.ErrorContext},
		"long too":     {"anthropic", 400, `{"error":{"message":"prompt is too long: 9 tokens"}}`, mesh.ErrorContext},
		"bad":          {"anthropic", 400, `{"error":{"message":"max_tokens"}}`, mesh.ErrorInvalid},
		"elsewhere":    {"openai", 307, ``, mesh.ErrorInvalid},
		"no JSON":      {"openai", 200, `<html>`, mesh.ErrorUnavailable},
		"refused":      {"anthropic", 200, `{"stop_reason":"refusal"}`, mesh.ErrorRefused},
		"refused also": {"openai", 200, `{"choices":[{"message":{},"finish_reason":"content_filter"}]}`, mesh.ErrorRefused},
	} {
		calls := 0
		_, kind, known := ask(t, c.kind, hello+`}`, func(w http.ResponseWriter, _ *http.Request) {
			calls++
			w.Header().Set("Retry-After", "60")
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		})
		require.Equal(t, c.want, kind, name)
		require.Equal(t, 1, calls, "%s: one attempt is one call", name)
		require.Equal(t, c.want == mesh.ErrorRateLimited, known["p"].RateLimitedUntil != nil, name)
	}
	_, kind, _ := ask(t, "openai", `{"route":{"provider":"other","model":"m"},"messages":[{"role":"user","content":"x"}]}`, nil)
	require.Equal(t, mesh.ErrorAuth, kind)
}

// TestAnAnswerThatCannotBeReadTellsNoKey has a server put the key that it got into its status line, which net/http
// repeats.
func TestAnAnswerThatCannotBeReadTellsNoKey(t *testing.T) {
	t.Setenv("MODEL_TEST_KEY", "secret-key-1")
	_, kind, _ := ask(t, "openai", hello+`}`, func(w http.ResponseWriter, r *http.Request) { // looks for the key
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			_ = conn.Close()
		}
	})
	require.Equal(t, mesh.ErrorUnavailable, kind)
}

func TestFilesAreChecked(t *testing.T) {
	t.Setenv("MODEL_TEST_KEY", "secret-key-1")
	read := func(text string) (*File, error) {
		path := filepath.Join(t.TempDir(), "models.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return Read(path)
	}
	f, err := read("providers: {own: {kind: openai, key_env: MODEL_TEST_KEY}}")
	require.NoError(t, err)
	require.Equal(t, "https://api.openai.com/v1", f.Providers["own"].URL)
	require.Equal(t, []string{"model.own"}, f.Capabilities())
	for text, want := range map[string]string{
		"providers: {}":                                       "must name at least one provider",
		"providers: {p: {kind: azure}}":                       "must be openai or anthropic",
		"providers: {p: {kind: openai, url: 'https://me@h'}}": "a key belongs into key_env",
		"providers: {p: {kind: openai, key_env: NOT_THERE}}":  "no variable NOT_THERE",
		"providers: {p: {kind: openai, key: sk-1}}":           "key",
	} {
		_, err := read(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestRetryAfterHasABound(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"":                              mesh.Cooldown,
		"soon":                          mesh.Cooldown,
		"-5":                            time.Second,
		"60":                            time.Minute,
		"999999":                        24 * time.Hour,
		"Wed, 25 Nov 2026 12:05:00 GMT": 5 * time.Minute,
		"Fri, 31 Dec 9999 23:59:59 GMT": 24 * time.Hour,
	} {
		require.Equal(t, now.Add(want), retryAfter(header, now), header)
	}
}
