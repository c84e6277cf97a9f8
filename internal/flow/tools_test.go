package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// What a model writes as the id and the name of a call need not be what providers take.
func TestCalls(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`{"name":"n"},`, job.MaxCalls) + `{"name":"n"}`
	for text, want := range map[string]string{
		`{"text":"x"}`: "", `"x"`: "", ``: "", `{"tool_calls":7}`: "",
		`{"tool_calls":[{"id":"x9","name":"a"},{"id":"y_-","name":"b"}]}`:  "x9 a, y_- b",
		`{"tool_calls":[{"id":"x9","name":"a"},{"id":"x9","name":"b"}]}`:   "call-0 a, call-1 b",
		`{"tool_calls":[{"id":"call-1","name":"a"},{"name":"b"}]}`:         "call-0 a, call-1 b",
		`{"tool_calls":[{"id":"é","name":"a b"},{"id":"x","name":"a\n"}]}`: "call-0 unnamed, call-1 unnamed",
		`{"tool_calls":[` + many + `]}`:                                    strings.TrimSuffix(numbered(job.MaxCalls), ", "),
	} {
		var got []string
		for _, c := range Calls(json.RawMessage(text)) {
			got = append(got, c.ID+" "+c.Name)
		}
		require.Equal(t, want, strings.Join(got, ", "), text)
	}
}

func numbered(n int) (all string) {
	for i := range n {
		all += fmt.Sprintf("call-%d n, ", i)
	}
	return all
}

// Only a tool of the step is called, with an object of bounded depth that fits its schema.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	_, plan, err := Read("f.yaml", []byte(head+`labels: {team: x}
steps:
  a:
    task:
      type: model
      labels: {q: "${inputs.q}"}
      routes: [{provider: p, model: m}]
      payload: {messages: [{role: user, content: x}]}
    timeout: 5m
    retry: {max_attempts: 7}
    tools: [{server: s, name: n, arguments: {properties: {x: {type: integer}}, additionalProperties: false}}]
`))
	require.NoError(t, err)
	s := plan.Step("a")
	require.Equal(t, []any{job.DefaultTurns, api.AtMostOnce}, []any{s.Turns, s.Tools[0].Safety})
	deep := `{"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`
	for arguments, want := range map[string]string{
		`{"x":1}`: "", "\n{}": "", `{"x":"1"}`: "x: got string, want integer", `{"y":1}`: "'y' not allowed",
		`[]`: "must be a JSON object", `"{"`: "must be a JSON object", ``: "must be a JSON object", deep: "at most 64 levels",
	} {
		task, refused := Call(context.Background(), plan, s, &api.ToolCall{Name: "n", Arguments: json.RawMessage(arguments)})
		require.Equal(t, want == "", task != nil, arguments)
		require.Contains(t, refused, want)
		if task != nil {
			require.Equal(t, map[string]string{"team": "x"}, task.Labels)
			require.Equal(t, []any{7, "5m0s", api.AtMostOnce, "mcp.s"}, []any{task.Retry.MaxAttempts,
				task.Timeout.String(), task.RetrySafety, task.RequiredCapabilities[0]})
		}
	}
	_, refused := Call(context.Background(), plan, s, &api.ToolCall{Name: "m", Arguments: json.RawMessage(`{}`)})
	require.Equal(t, "there is no such tool; there are n", refused)
}
