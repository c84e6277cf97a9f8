package flow

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBegin(t *testing.T) {
	t.Parallel()
	d, plan, err := Read("f.yaml", []byte(head+`
labels: {a: "${inputs.n}-x", b: plain, c: "${inputs.s}"}
inputs: {properties: {n: {type: integer, default: 7}, s: {}}}
steps:
  one: {task: {type: echo, labels: {c: own, d: "${inputs.s}"}}, check: {task: {type: judge}}}
  two: {task: {type: model, routes: [{provider: p, model: m}], payload: {messages: [{role: user, content: x}]}}, tools: [{name: t, server: s, arguments: {type: object}}]}
`))
	require.NoError(t, err)
	begun, inputs, err := Begin(t.Context(), d, plan, json.RawMessage(`{"s": "y"}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"s": "y", "n": 7}`, string(inputs))
	labels := map[string]string{"a": "7-x", "b": "plain", "c": "y"}
	require.Equal(t, labels, begun.Labels)
	one, two := begun.Step("one"), begun.Step("two")
	require.Equal(t, map[string]string{"a": "7-x", "b": "plain", "c": "own", "d": "${inputs.s}"}, one.Task.Labels)
	require.Equal(t, labels, one.Check.Task.Labels)
	require.Equal(t, labels, begun.ToolTask(two, "t").Labels)
	require.Equal(t, "${inputs.n}-x", plan.Step("one").Task.Labels["a"])

	for inputs, want := range map[string]string{
		`{}`:             "labels.c: there is no s in what it reads",
		`{"s": "${x}"}`:  "labels.c: would have ${ in it",
		`{"s": "a\nb"}`:  "labels.c has a line end or another control character: leave it out",
		`{"n": "seven"}`: "n: got string, want integer",
	} {
		_, _, err := Begin(t.Context(), d, plan, json.RawMessage(inputs))
		require.EqualError(t, err, want, inputs)
	}
}
