package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// bundles has elements return their payloads, but for some, which fail for good.
func (h *harness) bundles(failing ...int) {
	h.elements = func(_ context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
		elements := in.Elements
		if in.Element != nil {
			elements = []api.Element{{Number: *in.Element, Payload: in.Spec.Payload}}
		}
		report := contract.AttemptReport{AgentID: "a-1", Outcome: api.AttemptCompleted}
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, e := range elements {
			r := api.ElementResult{Number: e.Number, Outcome: api.AttemptCompleted, Output: e.Payload}
			if slices.Contains(failing, e.Number) {
				r = api.ElementResult{Number: e.Number, Outcome: api.AttemptFailed, Error: "disk full", NonRetryable: true}
			} else {
				h.results[e.Number] = e.Payload
			}
			report.Elements = append(report.Elements, r)
		}
		return report, nil
	}
}

// numbers is a JSON list of so many numbers.
func numbers(n int) string {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	text, _ := json.Marshal(all)
	return string(text)
}

// A step with more than 100 elements is one array, and ends as its elements do.
func TestManyElementsAreAnArray(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		each, more string
		failing    []int
		status     api.RunStatus
		steps, why string
		output     string
	}{
		"a list": {each: `inputs.list`, status: api.RunCompleted, steps: "a completed, b completed",
			output: `{"n":150,"last":1490,"failed":[]}`},
		"a count": {each: `{count: 150}`, status: api.RunCompleted, steps: "a completed, b completed",
			output: `{"n":150,"last":1490,"failed":[]}`},
		"tolerated": {each: `inputs.list`, more: "tolerate: 2%, ", failing: []int{3, 7}, status: api.RunPartial,
			steps: "a partial, b completed", why: "partial: a", output: `{"n":148,"last":1490,"failed":[3,7]}`},
		"not tolerated": {each: `inputs.list`, more: "tolerate: 1, ", failing: []int{3, 7, 9}, status: api.RunFailed,
			steps: "a failed, b failed", why: "mainstay array elements build-1~a"},
		"none is tolerated": {each: `inputs.list`, failing: []int{149}, status: api.RunFailed,
			steps: "a failed, b failed", why: "1 of 150 elements failed; see why with: mainstay array elements build-1~a"},
		"skipped": {each: `inputs.list`, more: "on_failure: skip, ", failing: []int{149}, status: api.RunCompleted,
			steps: "a skipped, b completed", output: `{"n":149,"last":1480,"failed":[149]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, nil)
			h.bundles(c.failing...)
			h.start(t, head+"steps:\n  a: {for_each: "+c.each+", "+c.more+`max_parallel: 8, task: {type: echo, payload: "${index * 10}"},
    output: {n: size(results), last: "results[size(results) - 1]", failed: failed}}
  b: {after: [a], task: {type: echo}}
`, `{"list": `+numbers(150)+`}`)
			l := h.outcome(t)
			require.Equal(t, c.status, l.Status, l.Why)
			require.Equal(t, c.steps, statuses(l))
			require.Contains(t, l.Why, c.why)
			a := l.Entry("a")
			require.Equal(t, "build-1~a", a.Array)
			require.Empty(t, a.Elements)
			require.Equal(t, 150, a.Counts.Done+a.Counts.Failed)
			if c.output != "" {
				require.JSONEq(t, c.output, string(a.Output))
			}
		})
	}
}

// What an array of a step cannot be is said as a failure of the step.
func TestWhatNoArrayOfAStepCanBe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ task, inputs, why string }{
		"a label for each element": {`{type: echo, labels: {n: "${string(index)}"}}`, `{"list": ` + numbers(101) + `}`,
			"only the payload may differ"},
		"an unknown cluster": {`{type: echo}`, `{"list": ` + numbers(101) + `}`, "there is no cluster gone"},
		"too large together": {`{type: echo, payload: "${inputs.text}"}`, `{"list": ` + numbers(101) + `, "text": "` +
			strings.Repeat("x", 11_000) + `"}`, "more than 1048576 bytes together"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, nil)
			h.bundles()
			definition := head
			if name == "an unknown cluster" {
				definition = strings.Replace(head, "default", "gone", 1)
			}
			h.start(t, definition+"steps:\n  a: {for_each: inputs.list, task: "+c.task+"}\n", c.inputs)
			l := h.outcome(t)
			require.Equal(t, api.RunFailed, l.Status)
			require.Contains(t, l.Why, c.why)
		})
	}
}

// The array of a step stops and pauses with its run.
func TestTheArrayOfAStepGoesWithItsRun(t *testing.T) {
	t.Parallel()
	const each = head + "steps:\n  a: {for_each: {count: 400}, max_parallel: 1, DEADLINE task: {type: echo}}\n"
	slowly := func(h *harness) {
		h.bundles()
		quick := h.elements
		h.elements = func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
			report, err := quick(ctx, in)
			for i := range report.Elements {
				report.Elements[i].Milliseconds = 1000 // so that each comes alone
			}
			return report, err
		}
	}
	t.Run("paused", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t, nil)
		slowly(h)
		begun := 0
		h.RegisterDelayedCallback(func() {
			h.update(contract.PauseRunUpdate.Name, contract.PauseRunRequest{Mode: api.PauseFinish})
		}, 0)
		h.RegisterDelayedCallback(func() {
			require.Equal(t, api.RunPaused, h.view(t).Status)
			h.mu.Lock()
			begun = len(h.begun)
			h.mu.Unlock()
		}, time.Minute)
		h.RegisterDelayedCallback(func() {
			h.mu.Lock()
			require.Len(t, h.begun, begun, "nothing begins meanwhile")
			h.mu.Unlock()
			h.update(contract.ResumeRunUpdate.Name, contract.RunRequest{})
		}, time.Hour)
		h.start(t, strings.Replace(each, "DEADLINE", "", 1), `{}`)
		require.Equal(t, api.RunCompleted, h.outcome(t).Status)
		require.Greater(t, len(h.begun), begun)
		require.Equal(t, 400, len(h.results))
	})
	for name, more := range map[string]string{"cancelled": "", "its deadline passes": "deadline: 5s, "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, nil)
			h.elements = func(ctx context.Context, _ contract.RunTaskInput) (contract.AttemptReport, error) {
				<-ctx.Done()
				return contract.AttemptReport{}, fmt.Errorf("stopped: %w", context.Cause(ctx))
			}
			if more == "" {
				h.RegisterDelayedCallback(func() {
					h.update(contract.CancelRunUpdate.Name, contract.RunRequest{Reason: "not needed"})
				}, time.Second)
			}
			h.start(t, strings.Replace(each, "DEADLINE", more, 1), `{}`)
			l := h.outcome(t)
			if more == "" {
				require.Equal(t, api.RunCancelled, l.Status)
				return
			}
			require.Equal(t, api.RunFailed, l.Status)
			require.Contains(t, l.Why, "its deadline of 5s passed")
		})
	}
}
