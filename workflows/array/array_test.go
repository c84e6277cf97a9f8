package array_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// element plays an agent's handler of one element.
type element func(n, attempt int) api.ElementResult

// harness runs an Array workflow in the SDK's test environment.
type harness struct {
	*sdktestsuite.TestWorkflowEnvironment
	mu     sync.Mutex
	inputs []contract.RunTaskInput // of deliveries
	times  []time.Time             // when they began
	begun  map[int]int             // how often an element was begun
	play   element
	// deliver, if there is one, plays a whole delivery; a report with an outcome is its failure.
	deliver func(in *contract.RunTaskInput) *contract.AttemptReport
}

func newHarness(play element) *harness {
	h := &harness{TestWorkflowEnvironment: workflowtest.NewEnvironment(), begun: map[int]int{}, play: play}
	worker.RegisterWorkflows(h)
	h.RegisterActivityWithOptions(h.run, activity.RegisterOptions{Name: contract.RunTaskActivity.Name})
	return h
}

// run plays a hub with an agent that knows bundles.
func (h *harness) run(_ context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inputs, h.times = append(h.inputs, in), append(h.times, h.Now())
	if h.deliver != nil {
		if report := h.deliver(&in); report != nil {
			return *report, temporal.NewNonRetryableApplicationError(report.Reason, contract.AttemptFailure, nil, *report)
		}
	}
	start := time.Now()
	report := contract.AttemptReport{StartedAt: &start, EndedAt: &start, Outcome: api.AttemptCompleted}
	if in.Element != nil {
		h.begun[*in.Element]++
		r := h.result(*in.Element, in.Attempt)
		report.Elements = []api.ElementResult{r}
		if r.Outcome != api.AttemptCompleted {
			report.Outcome, report.Reason, report.Begun, report.Final = r.Outcome, r.Error, true, r.NonRetryable
			return report, temporal.NewNonRetryableApplicationError(r.Error, contract.AttemptFailure, nil, report)
		}
		return report, nil
	}
	for _, e := range in.Elements {
		h.begun[e.Number]++
		report.Elements = append(report.Elements, h.result(e.Number, e.Attempt))
	}
	return report, nil
}

func (h *harness) result(n, attempt int) api.ElementResult {
	r := api.ElementResult{Outcome: api.AttemptCompleted}
	if h.play != nil {
		r = h.play(n, attempt)
	}
	r.Number = n
	return r
}

func (h *harness) start(change func(*contract.ArrayInput)) {
	in := contract.ArrayInput{Lane: "lane/c", Definition: array.Definition{Count: 1000,
		Spec: api.TaskSpec{Type: "work", Cluster: "c"}}}
	if change != nil {
		change(&in)
	}
	h.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: contract.ArrayWorkflowID("a"),
		TaskQueue: contract.WorkerQueue})
	h.ExecuteWorkflow(contract.ArrayWorkflow, in)
}

// outcome is the array's state, however the workflow ended.
func (h *harness) outcome(t *testing.T) contract.ArrayState {
	t.Helper()
	require.True(t, h.IsWorkflowCompleted())
	var state contract.ArrayState
	err := h.GetWorkflowError()
	var failed *temporal.ApplicationError
	var cancelled *temporal.CanceledError
	switch {
	case err == nil:
		require.NoError(t, h.GetWorkflowResult(&state))
	case errors.As(err, &failed):
		require.NoError(t, failed.Details(&state), err)
	case errors.As(err, &cancelled):
		require.NoError(t, cancelled.Details(&state))
	default:
		t.Fatalf("the workflow ended with %v", err)
	}
	return state
}

// asks sends a request after a while.
func (h *harness) asks(after time.Duration, r contract.ArrayRequest) *workflowtest.Answer {
	answer := &workflowtest.Answer{}
	h.RegisterDelayedCallback(func() { h.UpdateWorkflow(contract.ArrayUpdate.Name, "", answer, r) }, after)
	return answer
}

// dies is an element that fails for good by itself: its attempts are used up.
func dies(numbers ...int) element {
	return func(n, _ int) api.ElementResult {
		if slices.Contains(numbers, n) {
			return api.ElementResult{Outcome: api.AttemptFailed, Error: "no disk"}
		}
		return api.ElementResult{Outcome: api.AttemptCompleted}
	}
}

func TestAnArrayIsDeliveredInBundles(t *testing.T) {
	t.Parallel()
	h := newHarness(nil)
	h.start(nil)
	state := h.outcome(t)
	require.Equal(t, api.ArrayCompleted, state.Status)
	require.Equal(t, api.ElementCounts{Total: 1000, Completed: 1000}, state.Counts)
	require.Len(t, h.begun, 1000)
	require.Less(t, len(h.inputs), 100, "64 bundles of 4 go out before a time is known, then bundles of 100")
}

func TestElementsHaveTheirPayloads(t *testing.T) {
	t.Parallel()
	for _, safety := range []api.RetrySafety{api.Idempotent, api.AtMostOnce} {
		h := newHarness(nil)
		h.start(func(in *contract.ArrayInput) {
			in.Count, in.Items, in.Spec.RetrySafety = 0, []json.RawMessage{[]byte(`"x"`), []byte(`"y"`)}, safety
		})
		require.Equal(t, 2, h.outcome(t).Counts.Completed)
		var payloads []string
		for _, in := range h.inputs {
			for _, e := range in.Elements {
				require.Empty(t, in.Spec.Payload)
				payloads = append(payloads, e.ID+"="+string(e.Payload))
			}
			if in.Element != nil {
				payloads = append(payloads, in.TaskID+"="+string(in.Spec.Payload))
			}
		}
		slices.Sort(payloads)
		require.Equal(t, []string{`a~.0="x"`, `a~.1="y"`}, payloads)
		require.Len(t, h.inputs, map[api.RetrySafety]int{api.Idempotent: 1, api.AtMostOnce: 2}[safety])
	}
}

func TestDeadLettersWaitForARetry(t *testing.T) {
	t.Parallel()
	fails := true
	h := newHarness(func(n, attempt int) api.ElementResult {
		if n == 7 && fails {
			return api.ElementResult{Outcome: api.AttemptFailed, Error: "no disk"}
		}
		return api.ElementResult{Outcome: api.AttemptCompleted}
	})
	early := h.asks(0, contract.ArrayRequest{Action: contract.RetryArray})
	h.RegisterDelayedCallback(func() {
		value, err := h.QueryWorkflow(contract.ArrayQuery.Name)
		require.NoError(t, err)
		var state contract.ArrayState
		require.NoError(t, value.Get(&state))
		require.Equal(t, api.ArrayBlocked, state.Status)
		value, err = h.QueryWorkflow(contract.ElementsQuery.Name,
			contract.ElementsRequest{Status: api.ElementDeadLetter, Limit: 5})
		require.NoError(t, err)
		var page contract.ElementsPage
		require.NoError(t, value.Get(&page))
		require.Len(t, page.Elements, 1)
		require.Contains(t, page.Elements[0].Why, "no disk")
		h.mu.Lock()
		fails = false
		h.mu.Unlock()
	}, time.Hour)
	retried := h.asks(2*time.Hour, contract.ArrayRequest{Action: contract.RetryArray})
	h.start(nil)
	require.True(t, early.Refused)
	require.NoError(t, retried.Err)
	require.Equal(t, api.ElementCounts{Total: 1000, Completed: 1000}, h.outcome(t).Counts)
	require.Equal(t, 4, h.begun[7], "three attempts, and one after the retry")
}

func TestDeadLettersAreGivenUpAfterTheirRetention(t *testing.T) {
	t.Parallel()
	h := newHarness(dies(7))
	h.start(func(in *contract.ArrayInput) { in.DeadLetterRetention = api.Duration(time.Hour) })
	state := h.outcome(t)
	require.Equal(t, api.ArrayFailed, state.Status)
	require.Equal(t, 1, state.Counts.DeadLetter)
}

func TestAnArrayStopsWhenTooManyFail(t *testing.T) {
	t.Parallel()
	h := newHarness(func(int, int) api.ElementResult {
		return api.ElementResult{Outcome: api.AttemptFailed, NonRetryable: true}
	})
	h.start(func(in *contract.ArrayInput) { in.Tolerate = new(10) })
	state := h.outcome(t)
	require.Equal(t, api.ArrayFailed, state.Status)
	require.Contains(t, state.Why, "more than 10")
	require.Positive(t, state.Counts.Cancelled)
}

func TestAPausedArrayBeginsNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(func(_, attempt int) api.ElementResult {
		if attempt == 1 {
			return api.ElementResult{Outcome: api.AttemptFailed, Error: "again"}
		}
		return api.ElementResult{Outcome: api.AttemptCompleted}
	})
	h.asks(time.Second, contract.ArrayRequest{Action: contract.PauseArray, Reason: "new disks"})
	again := h.asks(2*time.Second, contract.ArrayRequest{Action: contract.PauseArray})
	var during int
	h.RegisterDelayedCallback(func() { during = len(h.inputs) }, time.Minute)
	resumed := h.asks(time.Hour, contract.ArrayRequest{Action: contract.ResumeArray})
	h.start(func(in *contract.ArrayInput) { in.Count = 100 })
	require.True(t, again.Refused)
	require.NoError(t, resumed.Err)
	require.Equal(t, 100, h.outcome(t).Counts.Completed)
	require.Greater(t, len(h.inputs), during, "elements are tried again after the pause")
	for _, at := range h.times[during:] {
		require.GreaterOrEqual(t, at.Sub(h.times[0]), 59*time.Minute)
	}
}

func TestACancelledArrayEndsWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	h := newHarness(dies(3))
	h.asks(10*time.Minute, contract.ArrayRequest{Action: contract.CancelArray, Reason: "not needed"})
	h.start(func(in *contract.ArrayInput) { in.Count = 10 })
	state := h.outcome(t)
	require.Equal(t, api.ArrayCancelled, state.Status)
	require.Equal(t, api.ElementCounts{Total: 10, Completed: 9, Cancelled: 1}, state.Counts)
	require.Equal(t, "not needed", state.Why)
}

func TestLaterBundlesHaveTheNewPriority(t *testing.T) {
	t.Parallel()
	h := newHarness(dies(3))
	refused := h.asks(time.Second, contract.ArrayRequest{Action: contract.ReprioritizeArray, Priority: 9})
	taken := h.asks(time.Second, contract.ArrayRequest{Action: contract.ReprioritizeArray, Priority: 1})
	unknown := h.asks(time.Second, contract.ArrayRequest{Action: "explode"})
	h.start(func(in *contract.ArrayInput) { in.DeadLetterRetention = api.Duration(time.Minute) })
	require.True(t, refused.Refused)
	require.True(t, unknown.Refused)
	require.NoError(t, taken.Err)
	require.EqualValues(t, 1, h.outcome(t).Priority)
}

// Temporal takes 2,000 updates of a workflow. However often an array was changed, it can be resumed and cancelled.
func TestAnArrayThatWasChangedOftenCanBeCancelled(t *testing.T) {
	t.Parallel()
	h := newHarness(dies(3))
	var same, pauses []*workflowtest.Answer
	var last, cancelled *workflowtest.Answer
	ask := func(action contract.ArrayAction, p api.Priority) *workflowtest.Answer {
		answer := &workflowtest.Answer{}
		h.UpdateWorkflow(contract.ArrayUpdate.Name, "", answer, contract.ArrayRequest{Action: action, Priority: p})
		return answer
	}
	h.RegisterDelayedCallback(func() {
		for range 150 {
			same = append(same, ask(contract.ReprioritizeArray, api.DefaultPriority))
			ask(contract.ReprioritizeArray, api.PriorityHigh)
			ask(contract.ReprioritizeArray, api.DefaultPriority)
			pauses = append(pauses, ask(contract.PauseArray, 0))
			ask(contract.ResumeArray, 0)
		}
		last = ask(contract.ReprioritizeArray, api.PriorityHigh)
		cancelled = ask(contract.CancelArray, 0)
	}, time.Hour)
	h.start(func(in *contract.ArrayInput) { in.Count = 10 })
	require.Equal(t, api.ArrayCancelled, h.outcome(t).Status)
	for _, a := range same {
		require.True(t, contract.IsUnchanged(a.Err))
	}
	require.False(t, pauses[124].Refused, "the 499th change, and the 500th ends it")
	require.ErrorContains(t, pauses[125].Err, "can still be cancelled")
	require.ErrorContains(t, last.Err, "can still be cancelled")
	require.False(t, cancelled.Refused)
}

// An element that ends the process of its agent is a dead letter in the end, and the others complete.
func TestAPoisonElementIsFound(t *testing.T) {
	t.Parallel()
	h := newHarness(nil)
	losses := 0
	h.deliver = func(in *contract.RunTaskInput) *contract.AttemptReport {
		poison := in.Element != nil && *in.Element == 500 ||
			slices.ContainsFunc(in.Elements, func(e api.Element) bool { return e.Number == 500 })
		if !poison {
			return nil
		}
		losses++
		return &contract.AttemptReport{Outcome: api.AttemptLost, Begun: true, Reason: "the agent was lost"}
	}
	h.start(func(in *contract.ArrayInput) { in.DeadLetterRetention = api.Duration(time.Minute) })
	require.Equal(t, api.ElementCounts{Total: 1000, Completed: 999, DeadLetter: 1}, h.outcome(t).Counts)
	require.LessOrEqual(t, losses, 5)
}

func TestAnAtMostOnceElementThatWasLostWaitsForAPerson(t *testing.T) {
	t.Parallel()
	h := newHarness(nil)
	lost := 0
	h.deliver = func(in *contract.RunTaskInput) *contract.AttemptReport {
		if *in.Element != 5 || lost > 0 {
			return nil
		}
		lost++
		return &contract.AttemptReport{Outcome: api.AttemptLost, Begun: true}
	}
	all := h.asks(time.Minute, contract.ArrayRequest{Action: contract.RetryArray})
	one := h.asks(time.Hour, contract.ArrayRequest{Action: contract.RetryArray, Elements: []int{5}})
	h.start(func(in *contract.ArrayInput) { in.Count, in.Spec.RetrySafety = 20, api.AtMostOnce })
	require.True(t, all.Refused, "reviews are retried by name only")
	require.NoError(t, one.Err)
	require.Equal(t, 20, h.outcome(t).Counts.Completed)
	require.Equal(t, 1, h.begun[5])
}

func TestALongHistoryIsContinuedAsNew(t *testing.T) {
	t.Parallel()
	h := newHarness(nil)
	h.SetCurrentHistoryLength(10_001)
	h.start(func(in *contract.ArrayInput) {
		state := array.New(1000)
		b, _ := state.Begin(&in.Definition, time.Now())
		state.Take(&in.Definition, "a", b.Number, array.End{AttemptEnd: task.AttemptEnd{Outcome: api.AttemptReturned}},
			time.Now())
		in.Carried = &contract.ArrayCarried{State: state, Priority: 2}
	})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, h.GetWorkflowError(), &next)
	var input contract.ArrayInput
	require.NoError(t, contract.Payloads.FromPayloads(next.Input, &input))
	require.EqualValues(t, 2, input.Carried.Priority)
	require.Empty(t, h.inputs)

	later := newHarness(nil)
	later.start(func(in *contract.ArrayInput) { *in = input })
	require.Equal(t, 1000, later.outcome(t).Counts.Completed)
}

// What a person asks for in the workflow task in which the array continues as new is done.
func TestWhatIsAskedAsAnArrayContinuesAsNewIsDone(t *testing.T) {
	t.Parallel()
	reprioritize := contract.ArrayRequest{Action: contract.ReprioritizeArray, Priority: 1}
	for name, test := range map[string]struct {
		ask  func(h *harness)
		want func(t *testing.T, h *harness, next *contract.ArrayInput)
	}{
		"cancelled by a signal": {
			ask: func(h *harness) {
				h.SignalWorkflow(contract.ArraySignal.Name, contract.ArrayRequest{Action: contract.CancelArray})
			},
			want: isCancelled,
		},
		"cancelled by an update": {
			ask: func(h *harness) {
				h.UpdateWorkflow(contract.ArrayUpdate.Name, "", &workflowtest.Answer{},
					contract.ArrayRequest{Action: contract.CancelArray})
			},
			want: isCancelled,
		},
		"cancelled by a signal with an update": {
			ask: func(h *harness) {
				h.SignalWorkflowSkippingWorkflowTask(contract.ArraySignal.Name,
					contract.ArrayRequest{Action: contract.CancelArray})
				h.UpdateWorkflow(contract.ArrayUpdate.Name, "", &workflowtest.Answer{}, reprioritize)
			},
			want: isCancelled,
		},
		"paused with an update": {
			ask: func(h *harness) {
				h.SignalWorkflowSkippingWorkflowTask(contract.ArraySignal.Name,
					contract.ArrayRequest{Action: contract.PauseArray, By: "ada"})
				h.UpdateWorkflow(contract.ArrayUpdate.Name, "", &workflowtest.Answer{}, reprioritize)
			},
			want: func(t *testing.T, _ *harness, next *contract.ArrayInput) {
				t.Helper()
				require.NotNil(t, next, "it continues as new")
				require.NotNil(t, next.Carried.Paused)
				require.Equal(t, "ada", next.Carried.Paused.By)
				require.EqualValues(t, 1, next.Carried.Priority)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(func(int, int) api.ElementResult {
				return api.ElementResult{Outcome: api.AttemptFailed, Error: "no"}
			})
			h.RegisterDelayedCallback(func() {
				h.SetCurrentHistoryLength(10_001)
				test.ask(h)
			}, time.Minute)
			h.start(func(in *contract.ArrayInput) { // its elements wait for their next try
				in.Count = 2
				in.Spec.Retry = api.RetryPolicy{MaxAttempts: 10, InitialInterval: api.Duration(time.Hour),
					MaxInterval: api.Duration(time.Hour)}
			})
			var again *workflow.ContinueAsNewError
			if !errors.As(h.GetWorkflowError(), &again) {
				test.want(t, h, nil)
				return
			}
			next := &contract.ArrayInput{}
			require.NoError(t, contract.Payloads.FromPayloads(again.Input, next))
			test.want(t, h, next)
		})
	}
}

func isCancelled(t *testing.T, h *harness, next *contract.ArrayInput) {
	t.Helper()
	if next != nil {
		h = newHarness(nil)
		h.start(func(in *contract.ArrayInput) { *in = *next })
	}
	require.Equal(t, api.ArrayCancelled, h.outcome(t).Status)
}

// Temporal ends a workflow whose one answer is larger than 4 MiB. These payloads are 12 MiB together.
func TestBundlesOfLargePayloadsBeginOverSeveralTurns(t *testing.T) {
	t.Parallel()
	h := newHarness(nil)
	turns := 0
	h.SetOnTimerScheduledListener(func(_ string, duration time.Duration) {
		if duration == time.Millisecond {
			turns++
		}
	})
	h.start(func(in *contract.ArrayInput) {
		in.Count, in.Spec.Payload = 64, json.RawMessage(`"`+strings.Repeat("x", 200<<10)+`"`)
	})
	require.Equal(t, 64, h.outcome(t).Counts.Completed)
	require.GreaterOrEqual(t, turns, 5, "with 2 MiB in each")
}

// failing is an array of which so many elements wait for another attempt as can: as many are under way as may be, then
// all but the first begin to fail, with long reasons.
func failing(in *contract.ArrayInput) {
	in.Parallel, in.Spec.ExpiresIn = array.MaxParallel, api.Duration(48*time.Hour)
	in.Spec.Retry = api.RetryPolicy{MaxAttempts: 9, InitialInterval: api.Duration(24 * time.Hour),
		MaxInterval: api.Duration(24 * time.Hour)}
	state, now := array.New(in.Total()), time.Now()
	var flying []array.Bundle
	for {
		for b, ok := state.Begin(&in.Definition, now); ok; b, ok = state.Begin(&in.Definition, now) {
			flying = append(flying, b)
		}
		if len(flying) == 0 {
			break
		}
		end := array.End{AttemptEnd: task.AttemptEnd{Outcome: api.AttemptCompleted}}
		for _, n := range flying[0].Elements {
			r := api.ElementResult{Number: n, Outcome: api.AttemptCompleted}
			if n >= 8000 {
				r.Outcome, r.Error = api.AttemptFailed, strings.Repeat("<", 8000)
			}
			end.Results = append(end.Results, r)
		}
		state.Take(&in.Definition, "a", flying[0].Number, end, now)
		flying = flying[1:]
	}
	in.Carried = &contract.ArrayCarried{State: state}
}

func TestTheCarriedStateStaysBelowTemporalsLimit(t *testing.T) {
	t.Parallel()
	in := contract.ArrayInput{Definition: array.Definition{Spec: api.TaskSpec{Type: "work", Cluster: "c"}}}
	item := json.RawMessage(`"12345678"`)
	for range api.MaxElements {
		in.Items = append(in.Items, item)
	}
	failing(&in)
	payloads, err := contract.Payloads.ToPayloads(in)
	require.NoError(t, err)
	require.Less(t, payloads.Size(), 2<<20)
}

// A workflow that computes for longer than a second is ended, and tried again for ever.
func TestAnArrayOfWhichMostElementsWaitIsCancelled(t *testing.T) {
	t.Parallel()
	h := newHarness(nil)
	cancelled := h.asks(time.Hour, contract.ArrayRequest{Action: contract.CancelArray, Reason: "not needed"})
	h.start(func(in *contract.ArrayInput) {
		in.Count = api.MaxElements
		failing(in)
	})
	require.NoError(t, cancelled.Err)
	state := h.outcome(t)
	require.Equal(t, api.ArrayCancelled, state.Status)
	require.Equal(t, api.ElementCounts{Total: api.MaxElements, Completed: 8000, Cancelled: 92_000}, state.Counts)
}

// An array of a step keeps no dead letters: its run goes on. Reviews wait for a person all the same.
func TestAnArrayOfAStepKeepsNoDeadLetters(t *testing.T) {
	t.Parallel()
	h := newHarness(dies(7))
	h.start(func(in *contract.ArrayInput) { in.Step = true })
	state := h.outcome(t)
	require.Equal(t, api.ArrayFailed, state.Status)
	require.Equal(t, 1, state.Counts.DeadLetter)
	require.Less(t, h.Now().Sub(h.times[0]), time.Hour)

	h = newHarness(nil)
	h.deliver = func(in *contract.RunTaskInput) *contract.AttemptReport {
		if *in.Element == 5 {
			return &contract.AttemptReport{Outcome: api.AttemptLost, Begun: true}
		}
		return nil
	}
	h.RegisterDelayedCallback(func() {
		h.SignalWorkflow(contract.ArraySignal.Name, contract.ArrayRequest{Action: contract.ResumeArray}) // is not possible
		h.SignalWorkflow(contract.ArraySignal.Name, contract.ArrayRequest{Action: contract.CancelArray, Reason: "enough"})
	}, time.Hour)
	h.start(func(in *contract.ArrayInput) { in.Step, in.Count, in.Spec.RetrySafety = true, 20, api.AtMostOnce })
	state = h.outcome(t)
	require.Equal(t, api.ArrayCancelled, state.Status)
	require.Equal(t, "enough", state.Why)
	require.Equal(t, api.ElementCounts{Total: 20, Completed: 19, Cancelled: 1}, state.Counts)
}

// Temporal terminates a workflow with 50 MiB of history: there is room for the ends of all bundles under way.
func TestBundlesBeginAsFarAsTheirResultsHaveRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		parallel, history, least, most int // bundles under way
	}{
		"new":              {array.MaxParallel, 0, 450, array.MaxParallel},
		"long":             {array.MaxParallel, 11 << 20, 400, 444},
		"of large results": {30, 11 << 20, 30, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(nil)
			h.SetCurrentHistorySize(c.history)
			under, peak := 0, 0
			limit := array.Definition{Parallel: c.parallel}
			h.deliver = func(in *contract.RunTaskInput) *contract.AttemptReport {
				assert.Equal(t, limit.ResultLimit(), in.ResultLimit)
				under++
				peak = max(peak, under)
				for until := time.Now().Add(10 * time.Second); ; { // the others begin meanwhile
					enough := peak >= c.least
					h.mu.Unlock()
					<-time.After(50 * time.Millisecond)
					h.mu.Lock()
					if enough || time.Now().After(until) {
						break
					}
				}
				under--
				return nil
			}
			h.start(func(in *contract.ArrayInput) {
				in.Count, in.Parallel = c.parallel+50, c.parallel
				in.Spec.RetrySafety = api.AtMostOnce // one by one
			})
			require.Equal(t, api.ArrayCompleted, h.outcome(t).Status)
			require.GreaterOrEqual(t, peak, c.least)
			require.LessOrEqual(t, peak, c.most)
		})
	}
}
