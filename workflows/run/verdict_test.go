package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// TestVerdicts has an agent check what the schema accepts: what it says is corrected, and nothing begins before it has
// said that the result is valid. A check that fails is no correction: a person decides, who may take the result.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	writes := func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
		return returns(fmt.Sprintf(`{"n":%d}`, in.Attempt))(ctx, in)
	}
	// says is an agent that answers each call with the next answer, and fails where that is empty.
	says := func(answers ...string) agent {
		calls := 0
		return func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
			answer := answers[calls]
			if calls++; answer == "" {
				return contract.AttemptReport{}, ended(contract.AttemptReport{AgentID: "a-2",
					Outcome: api.AttemptFailed, Begun: true, Reason: "no power"})
			}
			return returns(answer)(ctx, in)
		}
	}
	const wrong, valid = `{"valid":false,"errors":["too small"]}`, `{"valid":true}`
	for name, test := range map[string]struct {
		judge     agent
		check     string
		status    api.RunStatus // if it blocks: once a person has taken result 1
		blocks    string
		begun     []string
		feedback  string
		corrected int
	}{
		"valid": {says(valid), "", api.RunCompleted, "", []string{"a", "a.check", "b"}, "", 0},
		"corrected": {says(wrong, valid), "", api.RunCompleted, "", []string{"a", "a.check", "a", "a.check", "b"},
			"too small", 1},
		"of a model": {says(`{"text":"…","output":`+wrong+`}`, `{"output":`+valid+`}`), "", api.RunCompleted, "",
			[]string{"a", "a.check", "a", "a.check", "b"}, "too small", 1},
		"the schema is first": {says(valid), "rules: [{that: result.n > 1, else: one}], ", api.RunCompleted, "",
			[]string{"a", "a", "a.check", "b"}, "one", 1},
		"tried again": {says("", valid), "", api.RunCompleted, "", []string{"a", "a.check", "a.check", "b"}, "", 0},
		"exhausted": {says(wrong, wrong), "", api.RunCompleted, "too small",
			[]string{"a", "a.check", "a", "a.check", "b"}, "too small", 2},
		"fails": {says(wrong, "", ""), "", api.RunCompleted, "gave no verdict: ",
			[]string{"a", "a.check", "a", "a.check", "a.check", "b"}, "too small", 2},
		"no verdict":    {says(`"fine"`), "", api.RunCompleted, "not {valid, errors}", []string{"a", "a.check", "b"}, "", 1},
		"ends the step": {says(`{}`), "exhausted: fail, ", api.RunFailed, "", []string{"a", "a.check"}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, map[string]agent{"a": writes, "a.check": test.judge})
			h.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(nil)
			h.RegisterDelayedCallback(func() {
				l := h.view(t)
				require.Equal(t, api.RunBlocked, l.Status)
				require.Contains(t, l.Why, test.blocks)
				h.update(contract.StepUpdate.Name, contract.StepRequest{Step: "a", Action: api.CompleteStep, Attempt: 1})
			}, time.Hour)
			h.start(t, head+`steps:
  a:
    task: {type: write, payload: {}}
    check: {`+test.check+`task: {type: judge, payload: {n: "${result.n}"}, retry: {max_attempts: 2}}, correct: {attempts: 1}}
  b: {after: [a], task: {type: echo, payload: "${steps.a.output.n}"}}
`, "")
			l := h.outcome(t)
			require.Equal(t, test.status, l.Status, l.Why)
			require.Equal(t, test.begun, h.begun)
			a := l.Entry("a")
			require.Len(t, a.Corrections, test.corrected)
			require.Contains(t, string(h.inputs["a"]), test.feedback)
			last := a.Attempts[len(a.Attempts)-1].Number
			require.JSONEq(t, fmt.Sprintf(`{"n":%d}`, last), string(h.inputs["a.check"]), "the check sees the result")
			if test.status == api.RunCompleted {
				taken := map[bool]int{true: 1, false: last}[test.blocks != ""]
				require.JSONEq(t, fmt.Sprint(taken), string(h.inputs["b"]))
			}
			for i, attempt := range a.Verdict.Attempts {
				require.Equal(t, i+1, attempt.Number, "the attempts of all verdicts count on")
			}
		})
	}
}

// TestVerdictInTime: the deadline of a step holds for its check too, and the result is not lost.
func TestVerdictInTime(t *testing.T) {
	t.Parallel()
	stopped := make(chan struct{})
	h := newHarness(t, map[string]agent{"a": returns(`{"n":1}`), "a.check": lasts(time.Minute, stopped)})
	h.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(nil)
	h.RegisterDelayedCallback(func() {
		require.Equal(t, "its result is being checked", h.view(t).Entry("a").Why)
		h.RegisterDelayedCallback(func() { close(stopped) }, time.Second)
	}, 500*time.Millisecond)
	h.RegisterDelayedCallback(func() {
		require.Contains(t, h.view(t).Entry("a").Why, "its deadline of 1s passed")
		h.update(contract.StepUpdate.Name, contract.StepRequest{Step: "a", Action: api.CompleteStep, Attempt: 1})
	}, time.Hour)
	h.start(t, head+`steps:
  a: {task: {type: write}, deadline: 1s, check: {task: {type: judge}}}
`, "")
	l := h.outcome(t)
	require.Equal(t, api.RunCompleted, l.Status, l.Why)
	require.Equal(t, json.RawMessage(`{"n":1}`), l.Entry("a").Output)
}

// TestVerdictContinuesAsNew: a run that continues as new after a result, and after a verdict, has each made once.
func TestVerdictContinuesAsNew(t *testing.T) {
	t.Parallel()
	in, begun, continued := contract.RunInput{}, []string(nil), 0
	for n := range 6 {
		suggested := make(chan struct{})
		later := func(answer string) agent {
			return func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
				<-suggested
				return returns(answer)(ctx, in)
			}
		}
		h := newHarness(t, map[string]agent{"a": later(`{"n":1}`), "a.check": later(`{"valid":true}`)})
		h.RegisterDelayedCallback(func() {
			h.SetContinueAsNewSuggested(n < 3)
			close(suggested)
		}, time.Millisecond)
		h.startWith(t, head+`steps:
  a: {task: {type: write}, deadline: 1h, check: {task: {type: judge}}}
  b: {after: [a], task: {type: echo, payload: "${steps.a.output.n}"}}
`, in)
		begun = append(begun, h.begun...)
		var again *workflow.ContinueAsNewError
		if !errors.As(h.GetWorkflowError(), &again) {
			l := h.outcome(t)
			require.Equal(t, api.RunCompleted, l.Status, l.Why)
			require.Equal(t, []string{"a", "a.check", "b"}, begun)
			require.GreaterOrEqual(t, continued, 2)
			return
		}
		continued++
		in = contract.RunInput{}
		require.NoError(t, contract.Payloads.FromPayloads(again.Input, &in))
	}
	t.Fatal("the run does not end")
}

// TestEveryCorrectionIsAnEvent: whoever listens sees each, and not only the first.
func TestEveryCorrectionIsAnEvent(t *testing.T) {
	t.Parallel()
	h := newHarness(t, map[string]agent{"a": func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
		return returns(fmt.Sprintf(`{"n":%d}`, in.Attempt))(ctx, in)
	}})
	told := 0
	h.OnSignalExternalWorkflow(mock.Anything, contract.ClusterWorkflowID("default"), mock.Anything,
		contract.AnnounceSignal.Name, mock.Anything).Return(func(string, string, string, string, any) error {
		told++
		return nil
	})
	h.start(t, head+`steps:
  a:
    task: {type: write, payload: {}}
    check: {rules: [{that: result.n > 3, else: too small}], correct: {attempts: 5}}
`, "")
	require.Equal(t, api.RunCompleted, h.outcome(t).Status)
	require.Equal(t, 3, told)
}
