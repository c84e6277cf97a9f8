package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// desk is a job whose model has two tools.
const desk = `steps:
  ask:
    task: {type: model, routes: [{provider: north, model: m}], payload: {messages: [{role: user, content: hi}]}}
    max_turns: 4
    tools:
      - {server: desk, name: find, safety: idempotent, arguments: {type: object, required: [text]}}
      - {server: desk, name: comment}
`

// calls is a model's answer that calls tools.
func calls(list ...string) string {
	for i, c := range list {
		name, arguments, _ := strings.Cut(c, " ")
		list[i] = fmt.Sprintf(`{"id":"c%d","name":%q,"arguments":%s}`, i, name, arguments)
	}
	return `{"text":"","tool_calls":[` + strings.Join(list, ",") + `],"invocation":{"input_tokens":60}}`
}

// model is one that gives these answers, one after another, and keeps the conversations that it was asked with.
type model struct {
	answers []string
	asked   [][]api.ModelMessage
}

func (m *model) play(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
	var payload struct{ Messages []api.ModelMessage }
	if err := json.Unmarshal(in.Spec.Payload, &payload); err != nil {
		return contract.AttemptReport{}, err
	}
	m.asked = append(m.asked, payload.Messages)
	return returns(m.answers[min(len(m.asked), len(m.answers))-1])(ctx, in)
}

// talk is a conversation in short.
func talk(messages []api.ModelMessage) string {
	var all []string
	for _, m := range messages {
		text := m.Role + " " + m.Content
		for _, c := range m.ToolCalls {
			text += c.ID + " " + c.Name + ","
		}
		if m.Failed {
			text = "failed " + text
		}
		all = append(all, text)
	}
	return strings.Join(all, "\n")
}

// reports is a tool that reports an error of a type.
func reports(kind, why string) agent {
	return func(context.Context, contract.RunTaskInput) (contract.AttemptReport, error) {
		return contract.AttemptReport{}, ended(contract.AttemptReport{AgentID: "a-1", Outcome: api.AttemptFailed,
			Begun: true, Final: true, ErrorType: kind, Reason: why})
	}
}

// TestTurns has a model call tools over several turns: each call is a task of its own, made once, and what it brought,
// or why it was not made, is in the next request.
func TestTurns(t *testing.T) {
	t.Parallel()
	m := &model{answers: []string{
		calls(`find {"text":"printer"}`, `find {}`, `drop {}`, `comment [1]`),
		calls(`comment {"id":"T-7"}`),
		`{"text":"done","invocation":{"input_tokens":1}}`}}
	h := newHarness(t, map[string]agent{"ask": m.play,
		"ask.0": returns(`{"content":[{"type":"text","text":"T-7"},{"type":"image"},{"type":"text","text":"T-8"}]}`),
		"ask.4": reports(task.ErrorTool, "it is closed")})
	h.start(t, head+desk+"  after: {after: [ask], task: {type: echo, payload: \"${steps.ask.output.text}\"}}\n", "")
	l := h.outcome(t)
	require.Equal(t, api.RunCompleted, l.Status, l.Why)
	require.Equal(t, []string{"ask", "ask.0", "ask", "ask.4", "ask", "after"}, h.begun)
	ask := l.Entry("ask")
	require.Equal(t, []int{2, 5, 3, 121}, []int{ask.Turns, len(ask.Elements), len(ask.Attempts), l.Tokens})
	require.JSONEq(t, `"done"`, string(h.inputs["after"]))
	require.JSONEq(t, `{"server":"desk","tool":"find","arguments":{"text":"printer"}}`, string(h.inputs["ask.0"]))
	find, comment := h.specs["ask.0"], h.specs["ask.4"]
	require.Equal(t, []string{api.ToolTask, "mcp.desk", "idempotent"},
		[]string{find.Type, find.RequiredCapabilities[0], string(find.RetrySafety)})
	require.Equal(t, api.AtMostOnce, comment.RetrySafety)
	second := strings.Split(talk(m.asked[1]), "\n")
	require.Equal(t, []string{"user hi", "assistant c0 find,c1 find,c2 drop,c3 comment,", "tool T-7", "T-8"}, second[:4])
	require.Contains(t, second[4], "failed tool it was not called: the arguments are not valid: missing property 'text'")
	require.Equal(t, "failed tool there is no such tool; there are find, comment", second[5])
	require.Contains(t, second[6], "failed tool it was not called: the arguments must be a JSON object")
	require.Contains(t, talk(m.asked[2]), "\nassistant c0 comment,\nfailed tool")
	require.Contains(t, m.asked[2][7].Content, "it is closed")
}

// TestTurnsEnd: a step fails, or is held, for turns without end, for a call that may or may not have been made, and for
// a conversation that is too long. A retry goes on with what was done, and the model hears why.
func TestTurnsEnd(t *testing.T) {
	t.Parallel()
	find := `find {"text":"x"}`
	large := `{"content":[{"type":"text","text":"` + strings.Repeat("x", 60<<10) + `"}]}`
	for name, test := range map[string]struct {
		answers []string
		tool    agent // that which the first calls
		blocks  string
		begun   string
		heard   string // in the last request
	}{
		"max_turns": {[]string{calls(find), calls(find), calls(find), calls(find), `{"text":"x"}`}, nil,
			"still calls tools in turn 4, and max_turns is 4", "ask ask.0 ask ask.1 ask ask.2 ask | ask", "user go on"},
		"unknown outcome": {[]string{calls(`comment {}`, find), `{"text":"x"}`}, reports("tool_outcome_unknown", "cut off"),
			"call 0, of the tool comment: ", "ask ask.0 ask.1 | ask", "cut off\ntool \"ask.1\"\nuser go on"},
		"too long": {[]string{calls(find, find, find, find, find), `{"text":"x"}`}, returns(large),
			"its conversation has more than 256 KiB", "ask ask.0 ask.1 ask.2 ask.3 ask.4 | ask",
			"failed tool the result does not fit into the conversation any more\nuser go on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &model{answers: test.answers}
			byKey := map[string]agent{"ask": m.play, "ask.0": test.tool}
			if name == "too long" {
				for n := range 5 {
					byKey[fmt.Sprintf("ask.%d", n)] = test.tool
				}
			}
			h := newHarness(t, byKey)
			h.RegisterDelayedCallback(func() {
				l := h.view(t)
				require.Equal(t, api.RunBlocked, l.Status)
				require.Contains(t, l.Why, test.blocks)
				h.begun = append(h.begun, "|")
				h.update(contract.StepUpdate.Name, contract.StepRequest{Step: "ask", Action: api.RetryStep,
					RunRequest: contract.RunRequest{By: "ann", Reason: "go on"}})
			}, time.Hour)
			h.start(t, head+desk+"    on_failure: hold\n", "")
			l := h.outcome(t)
			require.Equal(t, api.RunCompleted, l.Status, l.Why)
			require.Equal(t, test.begun, strings.Join(h.begun, " "))
			require.True(t, strings.HasSuffix(talk(m.asked[len(m.asked)-1]), test.heard), talk(m.asked[len(m.asked)-1]))
		})
	}
}

// TestTurnsAreChecked: a result that is not valid is corrected within the conversation, which may go on with calls.
func TestTurnsAreChecked(t *testing.T) {
	t.Parallel()
	m := &model{answers: []string{calls(`find {"text":"x"}`), `{"text":"short"}`, calls(`find {"text":"y"}`), `{"text":"longer"}`}}
	h := newHarness(t, map[string]agent{"ask": m.play})
	h.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(nil)
	h.start(t, head+desk+"    check: {rules: [{that: size(result.text) > 5, else: too short}], correct: {attempts: 1}}\n", "")
	require.Equal(t, api.RunCompleted, h.outcome(t).Status)
	require.Equal(t, []string{"ask", "ask.0", "ask", "ask", "ask.1", "ask"}, h.begun)
	last := talk(m.asked[3])
	require.Contains(t, last, "assistant short\nuser Your answer was not accepted:\n- too short\n")
	require.True(t, strings.HasSuffix(last, "assistant c0 find,\ntool \"ask.1\""), last)
}

// TestTurnsContinueAsNew: no turn and no call is made again in another run of the workflow. A budget that is used up
// pauses the run between turns.
func TestTurnsContinueAsNew(t *testing.T) {
	t.Parallel()
	m := &model{answers: []string{calls(`find {"text":"a"}`, `comment {}`), calls(`find {"text":"b"}`), `{"text":"x"}`}}
	var begun []string
	in := contract.RunInput{}
	for n := range 9 {
		h := newHarness(t, map[string]agent{"ask": m.play})
		if n < 6 {
			h.SetOnActivityStartedListener(func(*activity.Info, context.Context, converter.EncodedValues) {
				h.SetContinueAsNewSuggested(true)
			})
		}
		h.RegisterDelayedCallback(func() {
			require.Equal(t, api.RunPaused, h.view(t).Status)
			h.update(contract.ResumeRunUpdate.Name, contract.RunRequest{By: "ann"})
		}, time.Hour)
		h.startWith(t, head+"budget: {tokens: 100}\n"+desk, in)
		begun = append(begun, h.begun...)
		var again *workflow.ContinueAsNewError
		if !errors.As(h.GetWorkflowError(), &again) {
			l := h.outcome(t)
			require.Equal(t, api.RunCompleted, l.Status, l.Why)
			require.Equal(t, 1, l.Budgets)
			require.GreaterOrEqual(t, n, 3)
			require.Equal(t, []string{"ask", "ask.0", "ask.1", "ask", "ask.2", "ask"}, begun)
			require.Len(t, m.asked[2], 6)
			return
		}
		in = contract.RunInput{}
		require.NoError(t, contract.Payloads.FromPayloads(again.Input, &in))
	}
	t.Fatal("the run does not end")
}

// TestTurnsAreCancelled: a run that is cancelled, or whose step is late, makes no other call.
func TestTurnsAreCancelled(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"cancelled": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stopped := make(chan struct{})
			m := &model{answers: []string{calls(`find {"text":"a"}`, `comment {}`)}}
			h := newHarness(t, map[string]agent{"ask": m.play, "ask.0": lasts(time.Hour, stopped)})
			deadline := ""
			h.RegisterDelayedCallback(func() {
				if !late {
					h.update(contract.CancelRunUpdate.Name, contract.RunRequest{By: "ann"})
				}
			}, 500*time.Millisecond)
			h.RegisterDelayedCallback(func() { close(stopped) }, 1500*time.Millisecond)
			if late {
				deadline = "    deadline: 1s\n"
			}
			h.start(t, head+desk+deadline, "")
			l := h.outcome(t)
			require.Equal(t, map[bool]api.RunStatus{false: api.RunCancelled, true: api.RunFailed}[late], l.Status, l.Why)
			h.mu.Lock()
			defer h.mu.Unlock()
			require.Equal(t, []string{"ask", "ask.0"}, h.begun)
			require.True(t, slices.Contains([]api.StepStatus{api.StepSkipped, api.StepFailed}, l.Entry("ask").Status))
		})
	}
}
