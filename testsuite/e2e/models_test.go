package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"google.golang.org/protobuf/proto"

	"mainstay.dev/mainstay/internal/agenttasks/mcptool"
	"mainstay.dev/mainstay/internal/agenttasks/modeltask"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// provider is a fake provider of models: it answers what the first message says, and counts the requests.
type provider struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int // by the first message
	hang  chan struct{}  // closed at the end
}

func newProvider(t *testing.T, name string) *provider {
	t.Helper()
	p := &provider{calls: map[string]int{}, hang: make(chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Messages []modeltask.Message }
		_ = json.NewDecoder(r.Body).Decode(&in)
		say := in.Messages[0].Content
		p.mu.Lock()
		p.calls[say]++
		p.mu.Unlock()
		what, _ := strings.CutPrefix(say, name+" ")
		what, _, _ = strings.Cut(what, ",")
		switch what {
		case "limits":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case "fails":
			w.WriteHeader(http.StatusInternalServerError)
		case "hangs":
			select {
			case <-r.Context().Done():
			case <-p.hang:
			}
		case "refuses":
			_, _ = w.Write([]byte(`{"choices":[{"message":{},"finish_reason":"content_filter"}]}`))
		case "knows no key":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":{"message":"incorrect key ` + os.Getenv("E2E_MODEL_KEY") + `"}}`))
		default:
			_, _ = w.Write([]byte(`{"id":"x","model":"m-1","choices":[{"message":{"content":"answer of ` + name +
				`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`))
		}
	}))
	t.Cleanup(func() { close(p.hang); p.Close() })
	return p
}

func (p *provider) called(say string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[say]
}

// TestModelsFailOver: each attempt is one call of one provider, and the next attempt is for the next route. Keys are in
// nothing that the control plane has.
func TestModelsFailOver(t *testing.T) {
	const key = "sk-e2e-0123456789"
	t.Setenv("E2E_MODEL_KEY", key)
	r := newRuns(t)
	a, b := newProvider(t, "a"), newProvider(t, "b")
	serve := func() (*running, *network) {
		file := &modeltask.File{Providers: map[string]*modeltask.Provider{
			"a": {Kind: "openai", URL: a.URL, KeyEnv: "E2E_MODEL_KEY"}, "b": {Kind: "openai", URL: b.URL, KeyEnv: "E2E_MODEL_KEY"}}}
		n := newNetwork()
		var own atomic.Pointer[agent.Agent]
		models, err := modeltask.New(file, func(name string, access api.ProviderAccess) error {
			if a := own.Load(); a != nil {
				return a.SetProvider(name, access)
			}
			return nil
		})
		require.NoError(t, err)
		started := startAgent(t, agent.Options{HubURLs: []string{r.url}, Cluster: r.cluster, ID: plane.UniqueID("m"),
			Slots: 8, JoinToken: r.join, Capabilities: file.Capabilities(), DialContext: n.dial},
			map[string]agent.Handler{modeltask.Type: models.Handle})
		own.Store(started.own)
		return started, n
	}
	_, first := serve()
	submit := func(say string, timeout time.Duration) string {
		text, err := json.Marshal(payload.Model{Messages: []modeltask.Message{{Role: "user", Content: say}}})
		require.NoError(t, err)
		task, err := r.Tasks.Submit(t.Context(), &api.TaskRequest{TaskSpec: api.TaskSpec{Type: modeltask.Type,
			Cluster: r.cluster, Payload: text, Timeout: api.Duration(timeout),
			Routes: []api.Route{{Provider: "a", Model: "m"}, {Provider: "b", Model: "m"}}}})
		require.NoError(t, err)
		return task.ID
	}
	ended := func(id string, status api.TaskStatus) *api.Task {
		t.Helper()
		task, err := r.Tasks.Wait(t.Context(), id, patience)
		require.NoError(t, err)
		require.Equal(t, status, task.Status, task.Why)
		return task
	}
	ids := map[string]string{}
	for _, say := range []string{"hello", "a fails", "a knows no key", "a refuses", "a hangs"} {
		ids[say] = submit(say, 3*time.Second)
	}
	for say, calls := range map[string][2]int{"hello": {1, 0}, "a fails": {1, 1}, "a knows no key": {1, 1}, "a hangs": {1, 1}} {
		task := ended(ids[say], api.TaskCompleted)
		require.Equal(t, calls, [2]int{a.called(say), b.called(say)}, say)
		require.Len(t, task.Attempts, calls[0]+calls[1], say)
		var result modeltask.Result
		require.NoError(t, json.Unmarshal(task.Result, &result))
		last := task.Attempts[len(task.Attempts)-1]
		require.Equal(t, last.Route.Provider, result.Invocation.Provider, say)
		require.Equal(t, []int{5, 2, last.Number}, []int{result.Invocation.InputTokens, result.Invocation.OutputTokens,
			result.Invocation.Attempt}, say)
	}
	refused := ended(ids["a refuses"], api.TaskFailed)
	require.Equal(t, [2]int{1, 0}, [2]int{a.called("a refuses"), b.called("a refuses")}, "no other provider is asked")
	require.Equal(t, "refused", refused.Attempts[0].ErrorType)

	const lost = "a hangs, and its agent is lost"
	ids[lost] = submit(lost, time.Minute)
	require.Eventually(t, func() bool { return a.called(lost) == 1 }, patience, 20*time.Millisecond)
	serve()
	first.cut()
	moved := ended(ids[lost], api.TaskCompleted)
	require.Equal(t, api.AttemptLost, moved.Attempts[0].Outcome)
	require.Equal(t, [2]int{1, 1}, [2]int{a.called(lost), b.called(lost)})
	ids["a limits"] = submit("a limits", time.Minute)
	limited := ended(ids["a limits"], api.TaskCompleted)
	require.Equal(t, "rate_limited", limited.Attempts[0].ErrorType)
	require.Equal(t, [2]int{1, 1}, [2]int{a.called("a limits"), b.called("a limits")})

	for say, id := range ids {
		history := historyOf(t, contract.TaskWorkflowID(id))
		require.Contains(t, history, say)
		require.NotContains(t, history, key, say)
	}
}

// historyOf is the history of a workflow, with its payloads as they are.
func historyOf(t *testing.T, workflowID string) string {
	t.Helper()
	var all strings.Builder
	for events := plane.Temporal(t).GetWorkflowHistory(t.Context(), workflowID, "", false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		require.NoError(t, err)
		data, err := proto.Marshal(event)
		require.NoError(t, err)
		all.Write(data)
	}
	return all.String()
}

// TestModelsUseTools runs the example of a model that calls tools over several turns. The agent is lost in the middle
// of a call of a tool: neither that call nor any before it is repeated, and a person says what has become of it. A
// model that never stops calling is stopped.
func TestModelsUseTools(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	const loops = "Do you ever stop?"
	var asked, looped, found, commented atomic.Int64
	talk := make(chan []map[string]any, 8)
	calls := func(list ...[2]string) map[string]any {
		var all []any
		for i, c := range list {
			all = append(all, map[string]any{"id": fmt.Sprint("c-", i), "type": "function",
				"function": map[string]any{"name": c[0], "arguments": c[1]}})
		}
		return map[string]any{"content": nil, "tool_calls": all}
	}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var in struct{ Messages, Tools []map[string]any }
		_ = json.NewDecoder(request.Body).Decode(&in)
		answer := map[string]any{"content": "commented on T-7"}
		switch {
		case len(in.Tools) != 2:
			answer["content"] = "no tools"
		case in.Messages[1]["content"] == loops:
			looped.Add(1)
			answer = calls([2]string{"find_ticket", `{"text": "printer"}`})
		default:
			asked.Add(1)
			talk <- in.Messages
			if len(in.Messages) == 2 {
				answer = calls([2]string{"find_ticket", `{"text": "printer"}`}, [2]string{"drop_ticket", `{}`})
			} else if len(in.Messages) == 5 {
				answer = calls([2]string{"add_comment", `{"id": "T-7", "text": "it burns"}`})
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"model": "m-1", "usage": map[string]int{"prompt_tokens": 5},
			"choices": []any{map[string]any{"message": answer}}})
	}))
	t.Cleanup(model.Close)
	type call struct {
		ID   string `json:"id,omitempty"`
		Text string `json:"text,omitempty"`
	}
	free := make(chan struct{})
	desk := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
	mcp.AddTool(desk, &mcp.Tool{Name: "find_ticket"}, func(context.Context, *mcp.CallToolRequest, call) (
		*mcp.CallToolResult, any, error) {
		found.Add(1)
		return nil, call{ID: "T-7"}, nil
	})
	mcp.AddTool(desk, &mcp.Tool{Name: "add_comment"}, func(context.Context, *mcp.CallToolRequest, call) (
		*mcp.CallToolResult, any, error) {
		commented.Add(1)
		<-free
		return nil, call{ID: "C-1"}, nil
	})
	tools := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return desk }, nil))
	t.Cleanup(tools.Close)
	t.Cleanup(func() { close(free) })
	ignore := func(string, api.ProviderAccess) error { return nil }
	serve := func() *network {
		providers := &modeltask.File{Providers: map[string]*modeltask.Provider{"local": {Kind: "openai", URL: model.URL}}}
		servers := &mcptool.File{Servers: map[string]*mcptool.Server{"desk": {URL: tools.URL,
			Tools: []string{"find_ticket", "add_comment"}, Idempotent: []string{"find_ticket"}}}}
		models, err := modeltask.New(providers, ignore)
		require.NoError(t, err)
		n := newNetwork()
		startAgent(t, agent.Options{HubURLs: []string{r.url}, Cluster: r.cluster, ID: plane.UniqueID("m"), Slots: 8,
			JoinToken: r.join, Capabilities: append(providers.Capabilities(), servers.Capabilities()...),
			DialContext: n.dial}, map[string]agent.Handler{modeltask.Type: models.Handle,
			mcptool.Type: mcptool.New(servers, "1", slog.New(slog.DiscardHandler), ignore).Handle})
		return n
	}
	first := serve()
	text, err := os.ReadFile("../../examples/jobs/tool-turns.yaml")
	require.NoError(t, err)
	definition := strings.Replace(string(text), "cluster: default", "cluster: "+r.cluster, 1)
	_, err = r.Jobs.Apply(t.Context(), "tool-turns", []byte(definition), "")
	require.NoError(t, err)
	ask := func(question string) string {
		inputs, err := json.Marshal(map[string]string{"question": question})
		require.NoError(t, err)
		run, err := r.Jobs.Dispatch(t.Context(), "tool-turns", api.DispatchRequest{Inputs: inputs})
		require.NoError(t, err)
		return run.ID
	}
	id := ask("What of the printer?")
	require.Eventually(t, func() bool { return commented.Load() == 1 }, patience, 20*time.Millisecond)
	serve()
	first.cut()
	blocked := r.awaitRun(t, id, api.RunBlocked)
	lost := blocked.Entry("ask").Elements[2]
	require.Equal(t, []any{api.StepBlocked, "add_comment", 1}, []any{lost.Status, lost.Tool, blocked.Entry("ask").Turns})
	task, err := r.Tasks.Get(t.Context(), lost.TaskID)
	require.NoError(t, err)
	require.Equal(t, []any{mcptool.Type, api.TaskReview}, []any{task.Type, task.Status})
	_, err = r.Tasks.Review(t.Context(), lost.TaskID, api.ReviewTaskRequest{
		Decision: api.ReviewCompleted, Result: json.RawMessage(`{"content": [{"type": "text", "text": "C-1"}]}`)})
	require.NoError(t, err)
	done := r.awaitRun(t, id, api.RunCompleted)
	require.JSONEq(t, `{"answer": "commented on T-7"}`, string(done.Entry("ask").Output))
	require.Equal(t, []int64{3, 1, 1}, []int64{asked.Load(), found.Load(), commented.Load()})
	require.Equal(t, 15, done.Tokens)
	<-talk
	<-talk
	last := <-talk
	require.Contains(t, last[3]["content"], "T-7")
	require.Equal(t, "error: there is no such tool; there are find_ticket, add_comment", last[4]["content"])
	require.Equal(t, "C-1", last[6]["content"])

	stopped := r.awaitRun(t, ask(loops), api.RunBlocked)
	require.Contains(t, stopped.Why, "its model still calls tools in turn 4, and max_turns is 4")
	require.Equal(t, []int64{4, 4}, []int64{looped.Load(), found.Load()}, "the tools of the last turn are not called")
}
