package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// agent plays what hubs and agents do with the attempt of a task.
type agent func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error)

// harness runs a Run workflow in the SDK's test environment, with expressions really evaluated.
type harness struct {
	*sdktestsuite.TestWorkflowEnvironment
	mu     sync.Mutex
	begun  []string // task ids, in the order in which their attempts began
	byKey  map[string]agent
	inputs map[string]json.RawMessage
	specs  map[string]api.TaskSpec

	elements agent                   // plays elements of arrays
	results  map[int]json.RawMessage // of these

	evaluations int
	turnless    int  // how many of them are refused, since it is not their turn
	begins      bool // only those that follow the end of a step are
}

const head = "job: build\ncluster: default\nsafety: idempotent\n"

func newHarness(t *testing.T, byKey map[string]agent) *harness {
	t.Helper()
	h := &harness{TestWorkflowEnvironment: workflowtest.NewEnvironment(), byKey: byKey,
		inputs: map[string]json.RawMessage{}, specs: map[string]api.TaskSpec{}, results: map[int]json.RawMessage{}}
	worker.RegisterWorkflows(h)
	h.RegisterActivityWithOptions(func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
		_, key := contract.Locate(in.TaskID)
		h.mu.Lock()
		h.begun = append(h.begun, key)
		h.inputs[key], h.specs[key] = in.Spec.Payload, in.Spec
		play := h.byKey[key]
		h.mu.Unlock()
		if strings.HasPrefix(key, ".") {
			play = h.elements
		}
		if play == nil {
			play = returns(`"` + key + `"`)
		}
		return play(ctx, in)
	}, activity.RegisterOptions{Name: contract.RunTaskActivity.Name})
	evaluator := activities.NewEvaluator(cluster{h})
	h.RegisterActivityWithOptions(func(ctx context.Context, in contract.EvaluateInput) (contract.Evaluated, error) {
		h.mu.Lock()
		h.evaluations++
		refused := h.evaluations <= h.turnless && (len(in.Ended) > 0 || !h.begins)
		h.mu.Unlock()
		if refused {
			return contract.Evaluated{}, temporal.NewApplicationError("others go first", contract.NotTheirTurn)
		}
		answer, err := evaluator.Evaluate(ctx, in)
		assert.LessOrEqual(t, answer.Bytes(), job.MaxBeginBytes, "more than a message of Temporal's may have")
		return answer, err
	}, activity.RegisterOptions{Name: contract.EvaluateActivity.Name})
	return h
}

// cluster places every task, and knows what elements returned.
type cluster struct{ *harness }

func (c cluster) Results(context.Context, string) (map[int]json.RawMessage, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.results), "", nil
}

func (cluster) Place(_ context.Context, _ string, spec api.TaskSpec) (contract.TaskPlace, string, error) {
	if spec.Type == "placed-slowly" {
		<-time.After(200 * time.Millisecond)
	}
	if spec.Cluster == "gone" {
		return contract.TaskPlace{}, "there is no cluster gone", nil
	}
	return contract.TaskPlace{Lane: "lane/" + spec.Cluster, Defaults: api.TaskDefaults{MaxAttempts: 2}}, "", nil
}

func (h *harness) start(t *testing.T, definition, inputs string) {
	t.Helper()
	h.startWith(t, definition, contract.RunInput{Inputs: json.RawMessage(inputs)})
}

func (h *harness) startWith(t *testing.T, definition string, in contract.RunInput) {
	t.Helper()
	_, plan, err := flow.Read("job.yaml", []byte(definition))
	require.NoError(t, err)
	in.Plan = *plan
	h.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: contract.RunWorkflowID("build-1"), TaskQueue: contract.WorkerQueue})
	h.ExecuteWorkflow(contract.RunWorkflow, in)
}

// outcome is the run's ledger, however the workflow ended.
func (h *harness) outcome(t *testing.T) *job.Ledger {
	t.Helper()
	require.True(t, h.IsWorkflowCompleted())
	var ledger job.Ledger
	err := h.GetWorkflowError()
	var failed *temporal.ApplicationError
	var cancelled *temporal.CanceledError
	switch {
	case err == nil:
		require.NoError(t, h.GetWorkflowResult(&ledger))
	case errors.As(err, &failed):
		require.NoError(t, failed.Details(&ledger), err)
		require.Equal(t, string(ledger.Status), failed.Type())
	case errors.As(err, &cancelled):
		require.NoError(t, cancelled.Details(&ledger))
	default:
		t.Fatalf("the workflow ended with %v", err)
	}
	return &ledger
}

// statuses are the steps' statuses as "a completed, b failed".
func statuses(l *job.Ledger) string {
	var words []string
	for i := range l.Steps {
		words = append(words, l.Steps[i].Step+" "+string(l.Steps[i].Status))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func (h *harness) view(t *testing.T) *job.Ledger {
	t.Helper()
	value, err := h.QueryWorkflow(contract.LedgerQuery.Name)
	require.NoError(t, err)
	var l job.Ledger
	require.NoError(t, value.Get(&l))
	return &l
}

func (h *harness) update(name string, in any) *workflowtest.Answer {
	answer := &workflowtest.Answer{}
	h.UpdateWorkflow(name, "", answer, in)
	return answer
}

func returns(output string) agent {
	return func(context.Context, contract.RunTaskInput) (contract.AttemptReport, error) {
		return contract.AttemptReport{AgentID: "a-1", Outcome: api.AttemptCompleted,
			Output: json.RawMessage(output)}, nil
	}
}

// fails fails the first n attempts.
func fails(n int) agent {
	return func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
		if in.Attempt > n {
			return returns(`"at last"`)(ctx, in)
		}
		return contract.AttemptReport{}, ended(contract.AttemptReport{AgentID: "a-1", Outcome: api.AttemptFailed,
			Begun: true, Reason: "disk full"})
	}
}

// Agents may say much of why an attempt failed, and how far it was. The ledger of a run must fit into a message of
// Temporal's all the same.
func TestALedgerFitsIntoAMessage(t *testing.T) {
	t.Parallel()
	long := func(context.Context, contract.RunTaskInput) (contract.AttemptReport, error) {
		reason := make([]byte, 8<<10)
		for i := range reason {
			reason[i] = '!' + byte(rand.IntN(90)) //nolint:gosec // only not to be compressed
		}
		return contract.AttemptReport{}, ended(contract.AttemptReport{AgentID: "a-1", Outcome: api.AttemptFailed,
			Begun: true, Reason: string(reason), ErrorType: string(reason[:128]),
			Progress: &api.Progress{Percent: 7, Step: string(reason[:800]), Message: string(reason[:4000])}})
	}
	byKey, definition := map[string]agent{}, head+"steps:\n"
	for n := range 60 {
		byKey[fmt.Sprintf("s%d", n)] = long
		definition += fmt.Sprintf("  s%d: {on_failure: skip, task: {type: echo}, "+
			"retry: {max_attempts: 20, initial_interval: 10ms}}\n", n)
	}
	for n := range job.MaxInline {
		byKey[job.ElementKey("each", n)] = long
	}
	definition += fmt.Sprintf("  each: {for_each: {count: %d}, on_failure: skip, task: {type: echo}, "+
		"retry: {max_attempts: 3, initial_interval: 10ms}}\n", job.MaxInline)
	h := newHarness(t, byKey)
	h.start(t, definition, `{}`)
	ledger := h.outcome(t)
	require.True(t, ledger.Status.Final())
	require.Len(t, ledger.Entry("each").Elements[job.MaxInline-1].Attempts, 3)
	require.Greater(t, len(ledger.Entry("s0").Attempts), 10)
	require.Equal(t, 7, ledger.Entry("s0").Attempts[0].Progress.Percent)
	message, err := contract.Payloads.ToPayload(ledger)
	require.NoError(t, err)
	require.Less(t, len(message.GetData()), 512<<10)
	var read job.Ledger
	require.NoError(t, contract.Payloads.FromPayload(message, &read))
	require.Equal(t, *ledger, read)
}

// lost loses the first attempt's agent.
func lost(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
	if in.Attempt > 1 {
		return returns(`"again"`)(ctx, in)
	}
	return contract.AttemptReport{}, ended(contract.AttemptReport{AgentID: "a-1", Outcome: api.AttemptLost,
		Begun: true, Reason: "silent"})
}

// lasts runs so long. The test environment does not tell activities that they are cancelled, so stopped does.
func lasts(d time.Duration, stopped <-chan struct{}) agent {
	return func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
		if in.Attempt > 1 {
			return returns(`"resumed"`)(ctx, in)
		}
		select {
		case <-time.After(d):
			return returns(`"done"`)(ctx, in)
		case <-stopped:
			return contract.AttemptReport{}, temporal.NewCanceledError(contract.AttemptReport{AgentID: "a-1",
				Begun: true})
		}
	}
}

func ended(report contract.AttemptReport) error {
	return temporal.NewApplicationErrorWithOptions(report.Reason, contract.AttemptFailure,
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{report}})
}

const diamond = head + `steps:
  a: {task: {type: echo}}
  b: {after: [a], task: {type: echo, payload: "${steps.a.output}"}}
  c: {after: [a], task: {type: echo}}
  d: {after: [b, c], task: {type: echo, payload: {b: "${steps.b.output}", in: "${inputs.n}"}}}
`

func TestDiamond(t *testing.T) {
	t.Parallel()
	h := newHarness(t, map[string]agent{"a": returns(`{"x":1}`)})
	h.start(t, diamond, `{"n": 3}`)
	l := h.outcome(t)
	require.Equal(t, api.RunCompleted, l.Status, l.Why)
	require.Equal(t, "a completed, b completed, c completed, d completed", statuses(l))
	require.Equal(t, "a", h.begun[0])
	require.Equal(t, "d", h.begun[3])
	require.JSONEq(t, `{"x":1}`, string(h.inputs["b"]))
	require.JSONEq(t, `{"b":"b","in":3}`, string(h.inputs["d"]))
	require.Equal(t, "build-1~d", l.Entry("d").TaskID)
	require.NotNil(t, l.EndedAt)
}

// Steps that only look values up begin without an evaluation once the cluster's defaults are known; what they get is
// what an evaluation gives.
func TestPlainSteps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last        string // what the last step does besides coming after the one before
		evaluations int
		status      api.RunStatus
		why         string
	}{
		"a task":          {`task: {type: echo, payload: {b: "${steps.b.output}", x: "${steps.a.output.x}", n: ["${inputs.n}"]}}`, 1, api.RunCompleted, ""},
		"a wait":          {`wait: {for: 1s}`, 1, api.RunCompleted, ""},
		"a condition":     {`if: inputs.n == 3, task: {type: echo}`, 2, api.RunCompleted, ""},
		"an expression":   {`task: {type: echo, payload: "${inputs.n + 1}"}`, 2, api.RunCompleted, ""},
		"elements":        {`for_each: {count: 2}, task: {type: echo}`, 2, api.RunCompleted, ""},
		"a capability":    {`task: {type: echo, required_capabilities: [gpu]}`, 2, api.RunCompleted, ""},
		"a missing value": {`task: {type: echo, payload: "${steps.a.output.y}"}`, 2, api.RunFailed, "step c failed: task.payload: there is no y in what it reads"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, map[string]agent{"a": returns(`{"x":1.50}`)})
			h.start(t, head+"steps:\n  a: {task: {type: echo}}\n  b: {after: [a], task: {type: echo, payload: \"${steps.a.output}\"}}\n  c: {after: [b], "+c.last+"}\n", `{"n": 3}`)
			l := h.outcome(t)
			require.Equal(t, c.why, l.Why)
			require.Equal(t, c.status, l.Status)
			require.Equal(t, c.evaluations, h.evaluations)
			require.JSONEq(t, `{"x":1.50}`, string(h.inputs["b"]))
			if name == "a task" {
				require.JSONEq(t, `{"b":"b","x":1.50,"n":[3]}`, string(h.inputs["c"]))
			}
			require.Equal(t, 2, h.specs["b"].Retry.MaxAttempts, "the cluster's default")
		})
	}
}

// Plain steps with much to fill in are filled in by evaluations: a workflow has a second for all that it does at once.
func TestPlainStepsWithMuchToFillIn(t *testing.T) {
	t.Parallel()
	const steps = 20
	definition := head + "steps:\n  a: {task: {type: echo}}\n"
	for n := range steps {
		definition += fmt.Sprintf("  b%d: {after: [a], task: {type: echo, payload: \"${inputs.big}\"}}\n", n)
	}
	h := newHarness(t, nil)
	h.start(t, definition, `{"big": "`+strings.Repeat("x", 200<<10)+`"}`)
	require.Equal(t, api.RunCompleted, h.outcome(t).Status)
	require.Greater(t, h.evaluations, 1)
	for n := range steps {
		require.Len(t, h.inputs[fmt.Sprint("b", n)], 200<<10+2)
	}
}

// How steps end, and their run with them.
func TestEnds(t *testing.T) {
	t.Parallel()
	quick := "retry: {max_attempts: 2, initial_interval: 10ms}\n"
	for name, c := range map[string]struct {
		steps  string
		agents map[string]agent
		inputs string
		status api.RunStatus
		want   string
		why    string
	}{
		"a failure fails the run, and what comes after it": {
			steps: `  a: {task: {type: echo}}
  b: {after: [a], task: {type: echo}}
  c: {task: {type: echo}}`,
			agents: map[string]agent{"a": fails(9)},
			status: api.RunFailed, want: "a failed, b failed, c completed",
			why: "step a failed: 2 of 2 attempts failed; last: disk full",
		},
		"a failed attempt is tried again": {
			steps: "  a: {task: {type: echo}}", agents: map[string]agent{"a": fails(1)},
			status: api.RunCompleted, want: "a completed",
		},
		"on_failure skip": {
			steps: `  a: {task: {type: echo}, on_failure: skip}
  b: {after: [a], task: {type: echo, payload: "${steps.a.status}"}}`,
			agents: map[string]agent{"a": fails(9)}, status: api.RunCompleted, want: "a skipped, b completed",
		},
		"on_failure partial": {
			steps: `  a: {task: {type: echo}, on_failure: partial}
  b: {after: [a], task: {type: echo, payload: "${steps.a.error}"}}`,
			agents: map[string]agent{"a": fails(9)}, status: api.RunPartial, want: "a partial, b completed",
			why: "partial: a",
		},
		"an optional step fails alone": {
			steps: `  a: {task: {type: echo}, optional: true}
  b: {task: {type: echo}}`,
			agents: map[string]agent{"a": fails(9)}, status: api.RunCompleted, want: "a failed, b completed",
		},
		"a condition": {
			steps: `  a: {task: {type: echo}, if: inputs.yes}
  b: {after: [a], task: {type: echo}}
  c: {after: [b], if: "!inputs.yes", task: {type: echo}}`,
			inputs: `{"yes": false}`, status: api.RunCompleted, want: "a skipped, b completed, c completed",
		},
		"a condition that cannot be evaluated": {
			steps: "  a: {task: {type: echo}, if: inputs.missing}", inputs: "{}",
			status: api.RunFailed, want: "a failed", why: "step a failed: if: there is no missing in what it reads",
		},
		"join any": {
			steps: `  a: {task: {type: echo}, on_failure: skip, optional: true}
  b: {task: {type: echo}, optional: true}
  c: {after: [a, b], join: any, task: {type: echo}, output: {x: result}}`,
			agents: map[string]agent{"b": fails(9)}, status: api.RunCompleted, want: "a completed, b failed, c completed",
		},
		"for_each": {
			steps: `  a: {for_each: "[3, 4, 5]", max_parallel: 2, task: {type: echo, payload: "${item * 10 + index}"}, output: {all: results}}
  b: {after: [a], task: {type: echo, payload: "${steps.a.output.all}"}}`,
			agents: map[string]agent{"a.0": echo, "a.1": echo, "a.2": echo, "b": echo},
			status: api.RunCompleted, want: "a completed, b completed",
		},
		"for_each tolerates": {
			steps:  `  a: {for_each: {count: 4}, tolerate: 25%, task: {type: echo}, output: {failed: failed}}`,
			agents: map[string]agent{"a.2": fails(9)}, status: api.RunPartial, want: "a partial", why: "partial: a",
		},
		"for_each fails": {
			steps:  `  a: {for_each: {count: 4}, tolerate: 1, task: {type: echo}}`,
			agents: map[string]agent{"a.2": fails(9), "a.3": fails(9)}, status: api.RunFailed, want: "a failed",
			why: "step a failed: 2 of 4 elements failed; element 2: 2 of 2 attempts failed; last: disk full",
		},
		"for_each of nothing": {
			steps:  `  a: {for_each: "[]", task: {type: echo}, output: {n: results.size()}}`,
			status: api.RunCompleted, want: "a completed",
		},
		"a sink completes the run": {
			steps: `  a: {task: {type: echo}, terminal_sink: true}
  b: {task: {type: echo}, optional: true}`,
			agents: map[string]agent{"a": returns(`{"stdout":"log\n{\"complete_run\": {\"ok\": true}}\n"}`),
				"b": lasts(time.Second, nil)},
			status: api.RunCompleted, want: "a completed, b failed",
		},
		"a sink completes the run once what it needs has ended": {
			steps: `  a: {task: {type: echo}, terminal_sink: true}
  b: {task: {type: echo}}`,
			agents: map[string]agent{"a": returns(`{"complete_run": 1}`), "b": lasts(100*time.Millisecond, nil)},
			status: api.RunCompleted, want: "a completed, b completed",
		},
		"a sink does not complete a run that fails": {
			steps: `  a: {task: {type: echo}, terminal_sink: true}
  b: {task: {type: echo}}`,
			agents: map[string]agent{"a": returns(`{"complete_run": 1}`), "b": fails(9)},
			status: api.RunFailed, want: "a completed, b failed",
			why: "step b failed: 2 of 2 attempts failed; last: disk full",
		},
		"an old name completes nothing": {
			steps:  "  a: {task: {type: echo}, terminal_sink: true}",
			agents: map[string]agent{"a": returns(`{"stdout":"log\n{\"complete_job\": 1}\n"}`)},
			status: api.RunFailed, want: "a failed",
			why: "step a failed: legacy_name: complete_job is the old name: return complete_step, or, of a step with terminal_sink: true, complete_run",
		},
		"only a sink may complete the run": {
			steps:  "  a: {task: {type: echo}}",
			agents: map[string]agent{"a": returns(`{"complete_run": 1}`)},
			status: api.RunFailed, want: "a failed",
			why: "step a failed: not_a_terminal_sink: only a step with terminal_sink: true may return complete_run",
		},
		"complete_step": {
			steps: `  a: {task: {type: echo}}
  b: {after: [a], task: {type: echo, payload: "${steps.a.output.n}"}}`,
			agents: map[string]agent{"a": returns(`{"stdout":"{\"complete_step\": {\"n\": 7}}"}`)},
			status: api.RunCompleted, want: "a completed, b completed",
		},
		"an output that cannot be evaluated": {
			steps: `  a: {task: {type: echo}, output: {x: result.gone}}
  b: {after: [a], task: {type: echo}}`,
			agents: map[string]agent{"a": returns(`{}`)}, status: api.RunFailed, want: "a failed, b failed",
			why: "step a failed: output.x: there is no gone in what it reads",
		},
		"a result that is too large": {
			steps:  `  a: {task: {type: echo}, result_limit: 1KiB}`,
			agents: map[string]agent{"a": returns(`"` + strings.Repeat("x", 2000) + `"`)},
			status: api.RunFailed, want: "a failed",
			why: "step a failed: its result has 2002 bytes, and result_limit allows 1024: write result_limit: 1MiB, or return where the data is, as a path or a key",
		},
		"a wait": {
			steps: `  a: {wait: {for: 2h}}
  b: {after: [a], wait: {until: "'2000-01-01T00:00:00+24:00'"}} # which JSON cannot hold
  c: {after: [b], task: {type: echo}}`,
			status: api.RunCompleted, want: "a completed, b completed, c completed",
		},
		"a deadline of a step": {
			steps: `  a: {task: {type: echo}, deadline: 1s}`, agents: map[string]agent{"a": lasts(3*time.Second, nil)},
			status: api.RunFailed, want: "a failed", why: "step a failed: its deadline of 1s passed",
		},
		"an idempotent step is moved": {
			steps: "  a: {task: {type: echo}}", agents: map[string]agent{"a": lost},
			status: api.RunCompleted, want: "a completed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, c.agents)
			h.start(t, head+quick+"steps:\n"+c.steps+"\n", c.inputs)
			l := h.outcome(t)
			require.Equal(t, c.want, statuses(l), l.Why)
			require.Equal(t, c.status, l.Status)
			require.Equal(t, c.why, l.Why)
		})
	}
}

// The ledger says what is in force for the attempts of a step; shown, it says until when they may run.
func TestPoliciesInForce(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 11, 25, 2, 0, 0, 0, time.UTC)
	timed := func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
		report, err := returns(`1`)(ctx, in)
		report.StartedAt = &begun
		return report, err
	}
	h := newHarness(t, map[string]agent{"a": timed, "b.0": timed})
	h.start(t, head+`steps:
  a: {task: {type: echo}, timeout: 5m, beacon: {timeout: 30s}, retry: {max_attempts: 7, initial_interval: 1s}}
  b: {for_each: {count: 1}, task: {type: echo}, on_failure: skip, recovery: {mode: local_restart, restart: {attempts: 4}}}
  c: {after: [a, b], for_each: {count: 200}, task: {type: echo}, timeout: 1m}
  d: {wait: {for: 1s}}
`, `{}`)
	l := h.outcome(t)
	l.Show(begun)
	a, b := l.Entry("a"), l.Entry("b")
	require.Equal(t, &api.StepPolicy{Timeout: api.Duration(5 * time.Minute), BeaconTimeout: api.Duration(30 * time.Second),
		Retry: &api.RetryPolicy{MaxAttempts: 7, MaxTransfers: api.DefaultMaxTransfers, InitialInterval: api.Duration(time.Second),
			MaxInterval: api.Duration(api.DefaultMaxInterval)}, OnFailure: api.FailRun}, a.Policy)
	require.Equal(t, begun.Add(5*time.Minute), *a.Attempts[0].DeadlineAt)
	require.Empty(t, a.RecoveryStatus, "it has no recovery")
	require.Nil(t, b.Policy.Retry)
	require.Equal(t, 4, *b.Policy.Recovery.Restart.Attempts)
	require.Equal(t, 24*time.Hour, b.Policy.Recovery.Restart.Interval.Std(), "a default")
	require.Equal(t, api.FailSkip, b.Policy.OnFailure)
	require.Equal(t, begun.Add(api.DefaultTaskTimeout), *b.Elements[0].Attempts[0].DeadlineAt)
	require.Equal(t, "ok", b.Elements[0].RecoveryStatus)
	require.Equal(t, time.Minute, l.Entry("c").Policy.Timeout.Std())
	require.Nil(t, l.Entry("d").Policy)
}

// Each limit of what a run holds, just kept and just passed; the run says what to do.
func TestLimits(t *testing.T) {
	t.Parallel()
	text := func(bytes int) string { return `"` + strings.Repeat("x", bytes-2) + `"` }
	many := func(n int, step string) (steps string) {
		for i := range n {
			steps += fmt.Sprintf("  s%03d: %s\n", i, step)
		}
		return steps
	}
	const reference = ": pass on where large data is, as a path or a key, instead of the data"
	for name, c := range map[string]struct {
		steps, input string
		agent        agent
		why          string // "": the run completes
	}{
		"result":              {many(1, "{result_limit: 1MiB, task: {type: echo}}"), `1`, returns(text(1 << 20)), ""},
		"results":             {many(15, "{result_limit: 1MiB, task: {type: echo}}"), `1`, returns(text(1 << 20)), ""},
		"results past it":     {many(17, "{result_limit: 1MiB, task: {type: echo}}"), `1`, returns(text(1 << 20)), "the payloads and results of the run have more than 16 MiB" + reference},
		"outputs":             {many(64, "{task: {type: echo}}"), `1`, returns(text(16 << 10)), ""},
		"outputs past it":     {many(65, "{task: {type: echo}}"), `1`, returns(text(16 << 10)), "the outputs of the run have more than 1 MiB: keep less of its results, with output"},
		"elements":            {many(1, `{for_each: {count: 24}, task: {type: echo, payload: "${inputs.v}"}}`), text(64 << 10), returns(`1`), ""},
		"elements past it":    {many(1, `{for_each: {count: 25}, task: {type: echo, payload: "${inputs.v}"}}`), text(64 << 10), returns(`1`), "the payloads of its 25 tasks have 1638400 bytes in all, and at most 1572864 may begin together" + reference},
		"many elements":       {many(6, `{for_each: {count: 24}, task: {type: echo, payload: "${inputs.v}"}}`), text(64 << 10), returns(`1`), ""},
		"checks together":     {many(9, `{result_limit: 1MiB, task: {type: echo}, check: {task: {type: judge, payload: "${result}"}}}`), `1`, returns(text(700 << 10)), ""},
		"complete_runs":       {many(9, "{terminal_sink: true, result_limit: 1MiB, task: {type: echo}}"), `1`, returns(`{"complete_run":` + text(256<<10) + `}`), ""},
		"complete_run":        {many(1, "{terminal_sink: true, result_limit: 1MiB, task: {type: echo}}"), `1`, returns(`{"complete_run":` + text(256<<10) + `}`), ""},
		"complete_run beyond": {many(1, "{terminal_sink: true, result_limit: 1MiB, task: {type: echo}}"), `1`, returns(`{"complete_run":` + text(256<<10+1) + `}`), "complete_run has 262145 bytes, and at most 256 KiB are kept: return where the data is, as a path or a key, instead of the data"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agents := map[string]agent{}
			for i := range 65 {
				agents[fmt.Sprintf("s%03d", i)] = c.agent
				agents[fmt.Sprintf("s%03d.check", i)] = returns(`{"valid": true}`)
			}
			h := newHarness(t, agents)
			h.start(t, head+"steps:\n"+c.steps, `{"v": `+c.input+`}`)
			l := h.outcome(t)
			if c.why == "" {
				require.Equal(t, api.RunCompleted, l.Status, l.Why)
				return
			}
			require.Equal(t, api.RunFailed, l.Status)
			require.Regexp(t, `^step s\d+ failed: `, l.Why)
			_, why, _ := strings.Cut(l.Why, " failed: ")
			require.Equal(t, c.why, why)
		})
	}
}

// echo returns its payload.
func echo(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
	return returns(string(in.Spec.Payload))(ctx, in)
}

// What people may do to a step that waits for them.
func TestPeople(t *testing.T) {
	t.Parallel()
	type act struct {
		action api.StepAction
		output string
	}
	const failing = "  a: {task: {type: echo}, on_failure: hold, retry: {max_attempts: 1}}\n  b: {after: [a], task: {type: echo, payload: \"${steps.a.output}\"}}"
	const asking = "  a: {approve: {message: \"publish ${inputs.n}?\"}}\n  b: {after: [a], task: {type: echo}}"
	for name, c := range map[string]struct {
		steps string
		act   act
		why   string // why the run is blocked before
		want  string
		saw   string // what b got
	}{
		"approve":  {asking, act{action: api.ApproveStep}, "step a: publish 3?", "a completed, b completed", ""},
		"reject":   {asking, act{action: api.RejectStep}, "step a: publish 3?", "a failed, b failed", ""},
		"skip":     {failing, act{action: api.SkipStep}, heldWhy, "a skipped, b completed", "null"},
		"complete": {failing, act{api.CompleteStep, `{"by":"hand"}`}, heldWhy, "a completed, b completed", `{"by":"hand"}`},
		"fail":     {failing, act{action: api.FailStep}, heldWhy, "a failed, b failed", ""},
		"retry":    {failing, act{action: api.RetryStep}, heldWhy, "a completed, b completed", `"at last"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, map[string]agent{"a": fails(1)})
			var before *job.Ledger
			var refused *workflowtest.Answer
			h.RegisterDelayedCallback(func() {
				before = h.view(t)
				refused = h.update(contract.StepUpdate.Name, contract.StepRequest{Step: "b", Action: api.ApproveStep})
				h.update(contract.StepUpdate.Name, contract.StepRequest{Step: "a", Action: c.act.action,
					Output:     json.RawMessage(c.act.output),
					RunRequest: contract.RunRequest{By: "ann", Reason: "checked by hand"}})
			}, time.Hour)
			h.start(t, head+"steps:\n"+c.steps+"\n", `{"n": 3}`)
			l := h.outcome(t)
			require.True(t, refused.Refused)
			require.Equal(t, api.RunBlocked, before.Status)
			require.Equal(t, c.why, before.Why)
			require.Equal(t, c.want, statuses(l))
			require.Equal(t, "ann", l.Decisions[0].By)
			require.Equal(t, "checked by hand", l.Decisions[0].Reason)
			if c.saw != "" {
				require.JSONEq(t, c.saw, string(h.inputs["b"]))
			}
		})
	}
}

// Lists know runs that wait for a person apart from those that wait for their time: only the first are problems.
func TestMarksOfWaitingRuns(t *testing.T) {
	t.Parallel()
	h := newHarness(t, nil)
	var marks []string
	h.OnUpsertTypedSearchAttributes(mock.MatchedBy(func(attributes temporal.SearchAttributes) bool {
		mark, _ := attributes.GetKeyword(contract.AttrStatus)
		if _, since := attributes.GetTime(contract.AttrStatusAt); since {
			marks = append(marks, mark)
		}
		return true
	})).Return(nil)
	h.RegisterDelayedCallback(func() {
		h.update(contract.StepUpdate.Name, contract.StepRequest{Step: "a", Action: api.ApproveStep})
	}, 2*time.Hour)
	_, plan, err := flow.Read("job.yaml", []byte(head+"steps:\n  a: {approve: {message: \"publish?\"}}\n"))
	require.NoError(t, err)
	h.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: contract.RunWorkflowID("build-1")})
	h.ExecuteWorkflow(contract.RunWorkflow, contract.RunInput{Plan: *plan, StartAt: h.Now().Add(time.Hour)})
	require.Equal(t, api.RunCompleted, h.outcome(t).Status)
	require.Equal(t, []string{string(contract.RunWaiting), string(api.RunBlocked), ""}, marks)
}

// A run of a job with required services begins when each of them has a healthy instance.
func TestARunWaitsForRequiredServices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lacking int  // looks that find none
		fails   bool // these looks
		more    string
		cancel  bool
		want    api.RunStatus
	}{
		"they come":                           {lacking: 3, want: api.RunCompleted},
		"they are there":                      {want: api.RunCompleted},
		"the deadline passes":                 {lacking: 1000, more: "deadline: 10m\n", want: api.RunFailed},
		"looks fail, and somebody cancels it": {lacking: 1000, fails: true, cancel: true, want: api.RunCancelled},
		"looks fail, and the deadline passes": {lacking: 1000, fails: true, more: "deadline: 10m\n", want: api.RunFailed},
		"somebody cancels it":                 {lacking: 1000, cancel: true, want: api.RunCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, nil)
			looks := 0
			h.RegisterActivityWithOptions(func(in contract.LookAtInstances) (contract.InstancesSeen, error) {
				require.Equal(t, []string{"db"}, in.Definition.Required())
				if looks++; looks > c.lacking {
					return contract.InstancesSeen{}, nil
				}
				if c.fails {
					return contract.InstancesSeen{}, errors.New("Temporal is away")
				}
				return contract.InstancesSeen{Missing: []string{"db"}}, nil
			}, activity.RegisterOptions{Name: contract.LookAtInstancesActivity.Name})
			h.RegisterDelayedCallback(func() {
				if c.lacking > 0 {
					l := h.view(t)
					require.Equal(t, api.RunBlocked, l.Status)
					require.Equal(t, "it waits until a healthy instance of each required service is there: none of db", l.Why)
				}
				if c.cancel {
					h.update(contract.CancelRunUpdate.Name, contract.RunRequest{Reason: "enough"})
				}
			}, map[bool]time.Duration{false: 3 * time.Second, true: time.Minute}[c.fails])
			h.start(t, head+c.more+"requires: {services: [db]}\nsteps:\n  a: {task: {type: echo}}\n", "")
			require.Equal(t, c.want, h.outcome(t).Status)
			require.Equal(t, c.want == api.RunCompleted, len(h.begun) == 1)
			if c.want == api.RunCompleted {
				require.Equal(t, c.lacking+1, looks)
			}
		})
	}
}

const heldWhy = "step a: it failed, and a person decides how to go on: 1 of 1 attempts failed; last: disk full"

// A step without a safety mark is tried again after a failure, and waits for a person when its agent was lost.
func TestUnmarked(t *testing.T) {
	t.Parallel()
	h := newHarness(t, map[string]agent{"a": fails(1), "b": lost})
	var refused *workflowtest.Answer
	h.RegisterDelayedCallback(func() {
		l := h.view(t)
		require.Equal(t, api.RunBlocked, l.Status)
		require.Equal(t, api.StepBlocked, l.Entry("b").Status)
		require.Contains(t, l.Entry("b").Why, "may have begun this unmarked task")
		review := contract.ReviewRequest{Decision: api.ReviewCompleted, Result: json.RawMessage(`1`)}
		refused = h.update(contract.ReviewUpdate.Name, review)
		review.Task = "b"
		h.update(contract.ReviewUpdate.Name, review)
	}, time.Hour)
	h.start(t, "job: build\ncluster: default\nsteps:\n  a: {task: {type: echo, payload: \"${run.id}\"}}\n  b: {task: {type: echo}}\n", "")
	l := h.outcome(t)
	require.Equal(t, api.RunCompleted, l.Status, l.Why)
	require.True(t, refused.Refused, "no task was named")
	require.Equal(t, api.Unmarked, l.Entry("a").Safety)
}

// A pause stops what may begin again, lets the rest finish, and begins nothing; a cancel ends all.
func TestPauseAndCancel(t *testing.T) {
	t.Parallel()
	steps := `  a: {task: {type: echo}}
  b: {task: {type: echo}, safety: at_most_once}
  c: {after: [b], task: {type: echo}}`
	for name, mode := range map[string]api.PauseMode{"stop": api.PauseStop, "finish": api.PauseFinish} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stopped := make(chan struct{})
			h := newHarness(t, map[string]agent{"a": lasts(time.Second, stopped), "b": lasts(time.Second, nil)})
			var paused *job.Ledger
			h.RegisterDelayedCallback(func() {
				h.update(contract.PauseRunUpdate.Name, contract.PauseRunRequest{Mode: mode,
					RunRequest: contract.RunRequest{By: "ann", Reason: "new disks"}})
			}, 50*time.Millisecond)
			if mode == api.PauseStop {
				h.RegisterDelayedCallback(func() { close(stopped) }, 150*time.Millisecond)
			}
			h.RegisterDelayedCallback(func() {
				paused = h.view(t)
				h.update(contract.ResumeRunUpdate.Name, contract.RunRequest{By: "bob"})
			}, time.Hour)
			h.start(t, head+"steps:\n"+steps+"\n", "")
			l := h.outcome(t)
			require.Equal(t, api.RunCompleted, l.Status, l.Why)
			require.Equal(t, api.RunPaused, paused.Status)
			require.Equal(t, "new disks", paused.Why)
			require.Equal(t, api.StepCompleted, paused.Entry("b").Status, "it may not begin again, so it finishes")
			require.NotContains(t, paused.Entry("c").Status, "queued")
			if mode == api.PauseStop {
				require.Equal(t, api.StepQueued, paused.Entry("a").Status)
				require.JSONEq(t, `"resumed"`, string(l.Entry("a").Output))
			} else {
				require.JSONEq(t, `"done"`, string(l.Entry("a").Output))
			}
			require.Equal(t, []string{"pause", "resume"}, []string{l.Decisions[0].Action, l.Decisions[1].Action})
		})
	}
	t.Run("alone", func(t *testing.T) { // nothing else happens that would have the run looked at
		t.Parallel()
		stopped := make(chan struct{})
		h := newHarness(t, map[string]agent{"a": lasts(time.Hour, stopped)})
		h.RegisterDelayedCallback(func() {
			h.update(contract.PauseRunUpdate.Name, contract.PauseRunRequest{Mode: api.PauseStop})
		}, 50*time.Millisecond)
		h.RegisterDelayedCallback(func() { close(stopped) }, 150*time.Millisecond)
		h.RegisterDelayedCallback(func() {
			require.Equal(t, api.RunPaused, h.view(t).Status)
			h.update(contract.ResumeRunUpdate.Name, contract.RunRequest{})
		}, time.Hour)
		h.start(t, head+"steps: {a: {task: {type: echo}}}\n", "")
		require.Equal(t, api.RunCompleted, h.outcome(t).Status)
	})
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		stopped := make(chan struct{})
		h := newHarness(t, map[string]agent{"a": lasts(time.Hour, stopped), "b": lasts(time.Hour, stopped)})
		h.RegisterDelayedCallback(func() {
			h.update(contract.CancelRunUpdate.Name, contract.RunRequest{By: "ann", Reason: "not needed"})
		}, 50*time.Millisecond)
		h.RegisterDelayedCallback(func() { close(stopped) }, 150*time.Millisecond)
		h.start(t, head+"steps:\n"+steps+"\n", "")
		l := h.outcome(t)
		require.Equal(t, api.RunCancelled, l.Status)
		require.Equal(t, "not needed", l.Why)
		require.Equal(t, "a failed, b failed, c skipped", statuses(l))
	})
}

// Temporal takes 2,000 updates of a workflow. However often a run was paused and its tasks were given other priorities,
// it can be resumed and cancelled.
func TestARunThatWasChangedOftenCanBeCancelled(t *testing.T) {
	t.Parallel()
	stopped := make(chan struct{})
	h := newHarness(t, map[string]agent{"a": lasts(time.Hour, stopped)})
	h.RegisterActivityWithOptions(func(contract.ReprioritizeInput) error { return nil },
		activity.RegisterOptions{Name: contract.ReprioritizeActivity.Name})
	const asked = 250
	var pauses, resumptions, priorities []*workflowtest.Answer
	var cancelled *workflowtest.Answer
	h.RegisterDelayedCallback(func() {
		for i := range asked {
			priorities = append(priorities, h.update(contract.ReprioritizeUpdate.Name, contract.ReprioritizeRequest{
				ForTask: contract.ForTask{Task: "a"}, Priority: api.PriorityHigh + api.Priority(i%2)}))
			pauses = append(pauses, h.update(contract.PauseRunUpdate.Name,
				contract.PauseRunRequest{Mode: api.PauseFinish}))
			resumptions = append(resumptions, h.update(contract.ResumeRunUpdate.Name, contract.RunRequest{}))
		}
		cancelled = h.update(contract.CancelRunUpdate.Name, contract.RunRequest{Reason: "enough"})
	}, 50*time.Millisecond)
	h.RegisterDelayedCallback(func() { close(stopped) }, 150*time.Millisecond)
	h.start(t, head+"steps: {a: {task: {type: echo}}}\n", "")
	require.Equal(t, api.RunCancelled, h.outcome(t).Status)
	require.False(t, cancelled.Refused)
	taken := 0
	for _, a := range slices.Concat(priorities, pauses, resumptions) {
		if !a.Refused {
			taken++
		}
	}
	require.InDelta(t, 500, taken, 1)
	require.Equal(t, pauses[166].Refused, resumptions[166].Refused, "what was paused can be resumed")
	require.True(t, priorities[asked-1].Refused)
	require.ErrorContains(t, pauses[asked-1].Err, "can still be cancelled")
}

// What has not begun can be given up and retried in turn.
func TestARunWhoseStepIsGivenUpOftenCanBeCancelled(t *testing.T) {
	t.Parallel()
	stopped := make(chan struct{})
	h := newHarness(t, map[string]agent{"a": lasts(time.Hour, stopped)})
	var fails, retries []*workflowtest.Answer
	for part := range 6 { // the environment takes 1,000 updates at a time
		h.RegisterDelayedCallback(func() {
			for n := range 100 {
				fails = append(fails, h.update(contract.StepUpdate.Name, contract.StepRequest{Step: "b", Action: []api.StepAction{api.FailStep, api.RejectStep}[n%2]}))
				retries = append(retries, h.update(contract.StepUpdate.Name,
					contract.StepRequest{Step: "b", Action: api.RetryStep}))
			}
		}, time.Duration(1+part)*50*time.Millisecond)
	}
	h.RegisterDelayedCallback(func() {
		h.update(contract.CancelRunUpdate.Name, contract.RunRequest{Reason: "enough"})
	}, 350*time.Millisecond)
	h.RegisterDelayedCallback(func() { close(stopped) }, 400*time.Millisecond)
	h.start(t, head+"steps: {a: {task: {type: echo}}, b: {approve: {message: go}}}\n", "")
	require.Equal(t, api.RunCancelled, h.outcome(t).Status)
	require.False(t, fails[499].Refused)
	require.False(t, retries[499].Refused)
	require.True(t, fails[500].Refused)
}

// A run that waits for services for long goes on in others, and then is admitted.
func TestContinuesAsNewWhileItWaits(t *testing.T) {
	t.Parallel()
	in := contract.RunInput{Inputs: json.RawMessage(`{"n": 3}`)}
	for n := range 3 {
		h := newHarness(t, nil)
		looks := 0
		h.RegisterActivityWithOptions(func(contract.LookAtInstances) (contract.InstancesSeen, error) {
			if looks++; n == 2 && looks == 2 {
				return contract.InstancesSeen{}, nil
			}
			return contract.InstancesSeen{Missing: []string{"db"}}, nil
		}, activity.RegisterOptions{Name: contract.LookAtInstancesActivity.Name})
		if n < 2 {
			h.RegisterDelayedCallback(func() { h.SetContinueAsNewSuggested(true) }, time.Minute)
		}
		h.startWith(t, strings.Replace(diamond, "steps:", "deadline: 1h\nrequires: {services: [db]}\nsteps:", 1), in)
		var again *workflow.ContinueAsNewError
		if n == 2 {
			l := h.outcome(t)
			require.Equal(t, "a completed, b completed, c completed, d completed", statuses(l))
			require.Equal(t, in.Carried.Ledger.DeadlineAt, l.DeadlineAt)
			return
		}
		require.ErrorAs(t, h.GetWorkflowError(), &again)
		require.Empty(t, h.begun)
		in = contract.RunInput{}
		require.NoError(t, contract.Payloads.FromPayloads(again.Input, &in))
		require.True(t, in.Carried.Waits)
	}
}

// A run whose history is long goes on in another one, when no task is open.
func TestContinuesAsNew(t *testing.T) {
	t.Parallel()
	var begun []string
	in := contract.RunInput{Inputs: json.RawMessage(`{"n": 3}`)}
	for range 4 {
		h := newHarness(t, map[string]agent{"a": lasts(100*time.Millisecond, nil)})
		if in.Carried == nil {
			h.RegisterDelayedCallback(func() { h.SetContinueAsNewSuggested(true) }, time.Millisecond)
		}
		h.startWith(t, strings.Replace(diamond, "steps:", "deadline: 1h\nsteps:", 1), in)
		begun = append(begun, h.begun...)
		var again *workflow.ContinueAsNewError
		if !errors.As(h.GetWorkflowError(), &again) {
			l := h.outcome(t)
			require.Equal(t, "a completed, b completed, c completed, d completed", statuses(l))
			require.NotNil(t, l.DeadlineAt)
			slices.Sort(begun)
			require.Equal(t, []string{"a", "b", "c", "d"}, begun, "each step has begun once")
			require.NotNil(t, in.Carried)
			return
		}
		in = contract.RunInput{}
		require.NoError(t, contract.Payloads.FromPayloads(again.Input, &in))
	}
	t.Fatal("the run does not end")
}

// A run hands over only what Temporal takes: it goes on until that is small enough.
func TestContinuesWithWhatTemporalTakes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it only has to be hard to compress
	text := make([]byte, 2<<20)
	for i := range text {
		text[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/"[random.IntN(64)]
	}
	next := 0
	play := map[string]agent{}
	returnsText := func(key string, length int) {
		play[key] = returns(`"` + string(text[next:next+length]) + `"`)
		next += length
	}
	var outputs, names []string
	definition := head + "steps:\n"
	for n := range 64 {
		name := "a" + strconv.Itoa(n)
		definition += "  " + name + ": {task: {type: echo}}\n"
		names, outputs = append(names, name), append(outputs, "steps."+name+".output")
		returnsText(name, 16_000)
	}
	for n := range 100 {
		returnsText("b."+strconv.Itoa(n), 9_900)
	}
	definition += "  b: {after: [" + strings.Join(names, ",") + "], for_each: '[" + strings.Join(append(outputs, outputs[:36]...), ",") + "]', max_parallel: 1, " +
		"task: {type: echo, payload: {x: '${item.substring(0,9900)}'}}, output: {n: \"'x'\"}}\n"
	inputs, err := json.Marshal(map[string]string{"x": string(text[len(text)-60_000:])})
	require.NoError(t, err)
	in := contract.RunInput{Inputs: inputs}
	begun, continued := 0, 0
	for {
		h := newHarness(t, play)
		h.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
			if info.ActivityType.Name == contract.RunTaskActivity.Name {
				if begun++; begun == 64+49 {
					h.SetContinueAsNewSuggested(true)
				}
			}
		})
		h.startWith(t, definition, in)
		var again *workflow.ContinueAsNewError
		if !errors.As(h.GetWorkflowError(), &again) {
			l := h.outcome(t)
			require.Equal(t, api.RunCompleted, l.Status, l.Why)
			break
		}
		continued++
		require.Less(t, proto.Size(again.Input), 2<<20)
		in = contract.RunInput{}
		require.NoError(t, contract.Payloads.FromPayloads(again.Input, &in))
	}
	require.Equal(t, 1, continued)
	require.Equal(t, 64+100, begun)
}

// A person decides about a step while its expressions are evaluated: it does not begin after that.
func TestSkippedWhileEvaluated(t *testing.T) {
	t.Parallel()
	h := newHarness(t, nil)
	h.RegisterDelayedCallback(func() {
		h.update(contract.StepUpdate.Name, contract.StepRequest{Step: "a", Action: api.SkipStep,
			RunRequest: contract.RunRequest{By: "ann"}})
	}, 20*time.Millisecond)
	h.start(t, head+"steps:\n  a: {task: {type: placed-slowly}}\n  b: {after: [a], task: {type: echo}}\n", "")
	l := h.outcome(t)
	require.Equal(t, api.RunCompleted, l.Status, l.Why)
	require.Equal(t, "a skipped, b completed", statuses(l))
	require.Equal(t, []string{"b"}, h.begun)
}

// A run whose models have used up its budget is paused before the next step; each resume gives it as much again.
func TestBudgets(t *testing.T) {
	t.Parallel()
	for _, budget := range []string{"tokens: 100", "usd: 0.1", "tokens: 1000, usd: 0.1", "tokens: 100, usd: 9"} {
		t.Run(budget, func(t *testing.T) {
			t.Parallel()
			took := returns(`{"invocation":{"input_tokens":90,"output_tokens":20,"usd":0.11}}`)
			h := newHarness(t, map[string]agent{"a": took, "b": took})
			var paused []*job.Ledger
			for n := range 2 {
				h.RegisterDelayedCallback(func() {
					paused = append(paused, h.view(t))
					h.update(contract.ResumeRunUpdate.Name, contract.RunRequest{By: "ann"})
				}, time.Duration(n+1)*time.Hour)
			}
			h.start(t, head+`budget: {`+budget+`}
steps:
  a: {task: {type: model, payload: {messages: [{role: user, content: hi}]}, routes: [{provider: north, model: m}]}}
  b: {after: [a], task: {type: model, payload: {messages: [{role: user, content: hi}]}, routes: [{provider: north, model: m}]}}
  c: {after: [b], task: {type: echo}}
`, "")
			l := h.outcome(t)
			require.Equal(t, api.RunCompleted, l.Status, l.Why)
			require.Equal(t, []int{220, 220_000, 2}, []int{l.Tokens, l.MicroUSD, l.Budgets})
			for n, step := range []string{"b", "c"} {
				require.Equal(t, api.RunPaused, paused[n].Status)
				require.Contains(t, paused[n].Why, fmt.Sprintf("its models have taken %d tokens", 110*(n+1)))
				require.Equal(t, api.StepReady, paused[n].Entry(step).Status, "it has not begun")
			}
		})
	}
}

// Each attempt of a task with routes is for the first provider that works: one whose key is refused is out, also for
// the corrections of the result, until a person has the step run again.
func TestRoutesOfAStep(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	h := newHarness(t, map[string]agent{"a": func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, in.Spec.Provider)
		var payload struct{ Route api.Route }
		if json.Unmarshal(in.Spec.Payload, &payload) != nil || payload.Route.Provider != in.Spec.Provider ||
			!slices.Contains(in.Spec.RequiredCapabilities, "model."+in.Spec.Provider) {
			return contract.AttemptReport{}, errors.New("the attempt does not know its route")
		}
		if in.Spec.Provider == "north" {
			return contract.AttemptReport{}, ended(contract.AttemptReport{AgentID: "a-1", Outcome: api.AttemptFailed,
				Begun: true, Reason: "no such key", ErrorType: "auth"})
		}
		return returns(fmt.Sprintf(`{"n": %d}`, len(asked)))(ctx, in)
	}})
	h.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(nil)
	h.RegisterDelayedCallback(func() {
		require.Equal(t, api.RunBlocked, h.view(t).Status)
		h.update(contract.StepUpdate.Name, contract.StepRequest{Step: "a", Action: api.RetryStep})
	}, time.Hour)
	h.start(t, head+`steps:
  a:
    task: {type: model, payload: {messages: [{role: user, content: hi}]}, routes: [{provider: north, model: m}, {provider: south, model: m}]}
    check: {rules: [{that: "result.n > 4", else: "more"}], correct: {attempts: 1}}
`, "")
	l := h.outcome(t)
	require.Equal(t, api.RunCompleted, l.Status, l.Why)
	require.Equal(t, []string{"north", "south", "south", "north", "south"}, asked)
	require.Equal(t, "south", l.Entry("a").Attempts[4].Route.Provider)
}

// A run whose tenant's other runs go first asks ever more rarely, by timers: a local activity that waits holds a place
// of the worker. A person can still cancel it.
func TestARunWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	const definition = head + "steps:\n  a: {if: 1 == 1, task: {type: echo, payload: {}}}\n"
	t.Run("it comes", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t, nil)
		h.turnless = 10
		began := h.Now()
		h.start(t, definition, "")
		require.Equal(t, api.RunCompleted, h.outcome(t).Status)
		require.Equal(t, 11, h.evaluations)
		require.Greater(t, h.Now().Sub(began), 2*time.Minute)
	})
	for name, cancel := range map[string]func(*harness){
		"by request":  func(h *harness) { h.update(contract.CancelRunUpdate.Name, contract.RunRequest{By: "ann"}) },
		"in Temporal": func(h *harness) { h.CancelWorkflow() },
		"in both ways": func(h *harness) {
			h.update(contract.CancelRunUpdate.Name, contract.RunRequest{By: "ann"})
			h.RegisterDelayedCallback(h.CancelWorkflow, time.Second)
		},
	} {
		t.Run("cancelled "+name+" with an output that waits", func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, nil)
			h.turnless, h.begins = 10, true
			var cancelledAt time.Time
			h.RegisterDelayedCallback(func() {
				cancelledAt = h.Now()
				cancel(h)
			}, 2*time.Second)
			h.start(t, head+"steps:\n  a: {task: {type: echo, payload: {}}, output: {x: result}}\n", "")
			l := h.outcome(t)
			require.Equal(t, api.RunCancelled, l.Status)
			require.NotEmpty(t, l.Entry("a").Output)
			require.LessOrEqual(t, h.evaluations, 12)
			require.Greater(t, h.Now().Sub(cancelledAt), 20*time.Second, "it waits between them")
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t, nil)
		h.turnless = 1000
		h.RegisterDelayedCallback(func() {
			require.Contains(t, h.view(t).Why, "others go first")
			h.update(contract.CancelRunUpdate.Name, contract.RunRequest{By: "ann"})
		}, 10*time.Minute)
		began := h.Now()
		h.start(t, definition, "")
		require.Equal(t, api.RunCancelled, h.outcome(t).Status)
		require.Less(t, h.evaluations, 30)
		require.Less(t, h.Now().Sub(began), 10*time.Minute+time.Second)
	})
}

// Temporal terminates a workflow with 50 MiB of history, and each attempt that fails may leave 256 KiB: a run goes on
// in another one before the next attempt, with what its task has tried.
func TestContinuesBeforeItsHistoryIsFull(t *testing.T) {
	t.Parallel()
	in, begun := contract.RunInput{}, 0
	for range 3 {
		h := newHarness(t, map[string]agent{"a": fails(4)})
		h.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
			if info.ActivityType.Name == contract.RunTaskActivity.Name && in.Carried == nil {
				h.SetCurrentHistorySize(17 << 20)
			}
		})
		h.startWith(t, head+"steps:\n  a: {task: {type: echo}, retry: {max_attempts: 6}}\n", in)
		begun += len(h.begun)
		var again *workflow.ContinueAsNewError
		if !errors.As(h.GetWorkflowError(), &again) {
			l := h.outcome(t)
			require.Equal(t, api.RunCompleted, l.Status, l.Why)
			require.NotNil(t, in.Carried, "it has continued")
			require.Len(t, l.Entry("a").Attempts, 5)
			require.Equal(t, 5, begun)
			return
		}
		in = contract.RunInput{}
		require.NoError(t, contract.Payloads.FromPayloads(again.Input, &in))
		require.Len(t, in.Carried.Tasks, 1)
	}
	t.Fatal("the run does not end")
}

// A run that holds too much to go on in another one ends the step that holds most, before Temporal ends the run.
func TestAStepEndsThatKeepsAFullRunFromContinuing(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(h *harness){
		"bytes":  func(h *harness) { h.SetCurrentHistorySize(43 << 20) },
		"events": func(h *harness) { h.SetCurrentHistoryLength(40_001) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			aStepEndsThatKeepsAFullRunFromContinuing(t, fill)
		})
	}
}

func aStepEndsThatKeepsAFullRunFromContinuing(t *testing.T, fill func(*harness)) {
	t.Helper()
	agents := map[string]agent{}
	for n := range 40 {
		agents[fmt.Sprint("a.", n)] = returns(`"` + strings.Repeat("x", 60<<10) + `"`)
	}
	agents["a.40"] = fails(1000)
	h := newHarness(t, agents)
	h.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, args converter.EncodedValues) {
		var input contract.RunTaskInput
		if info.ActivityType.Name == contract.RunTaskActivity.Name && args.Get(&input) == nil && input.Attempt == 7 {
			fill(h)
		}
	})
	h.start(t, head+"steps:\n  a: {for_each: {count: 41}, task: {type: echo}, retry: {max_attempts: 100, initial_interval: 1s, max_interval: 1s}}\n"+
		"  b: {task: {type: echo}}\n", `{}`)
	l := h.outcome(t)
	require.Equal(t, "a failed, b completed", statuses(l))
	require.Contains(t, l.Why, "step a failed: ")
	require.Contains(t, l.Why, "its payloads and results of 2400 KiB are more than the run can hold while attempts fail")
	require.Less(t, len(h.begun), 60)
}

// Attempts whose ends may be large go side by side only as far as the history has room for all.
func TestLargeResultsGoInTurns(t *testing.T) {
	t.Parallel()
	for limit, most := range map[string]int{"64KiB": 100, "1MiB": 23} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, map[string]agent{})
			under, peak := 0, 0
			play := func(ctx context.Context, in contract.RunTaskInput) (contract.AttemptReport, error) {
				h.mu.Lock()
				under++
				peak = max(peak, under)
				h.mu.Unlock()
				<-time.After(20 * time.Millisecond) // the others begin meanwhile
				h.mu.Lock()
				under--
				h.mu.Unlock()
				assert.Positive(t, in.ResultLimit)
				return returns(`1`)(ctx, in)
			}
			for n := range job.MaxInline {
				h.byKey[fmt.Sprint("a.", n)] = play
			}
			h.start(t, head+"steps: {a: {for_each: {count: "+strconv.Itoa(job.MaxInline)+"}, max_parallel: 100, result_limit: "+limit+", task: {type: echo}}}\n", `{}`)
			require.Equal(t, api.RunCompleted, h.outcome(t).Status)
			require.LessOrEqual(t, peak, most)
			require.Greater(t, peak, most/2)
		})
	}
}

// A person completes a step only with an output that the run has room for. What people do is not answered with all that
// the run has: each answer stays in its history.
func TestCompletingByHandKeepsToTheBounds(t *testing.T) {
	t.Parallel()
	agents := map[string]agent{"held": fails(10)}
	definition := head + "steps:\n  held: {task: {type: echo}, on_failure: hold, retry: {max_attempts: 1}}\n"
	for n := range job.MaxOutputsBytes / job.MaxOutputBytes {
		definition += fmt.Sprintf("  s%d: {task: {type: echo}}\n", n)
		agents[fmt.Sprint("s", n)] = returns(`"` + strings.Repeat("x", job.MaxOutputBytes-2) + `"`)
	}
	h := newHarness(t, agents)
	var refused, skipped *workflowtest.Answer
	h.RegisterDelayedCallback(func() {
		refused = h.update(contract.StepUpdate.Name, contract.StepRequest{Step: "held", Action: api.CompleteStep,
			Output: json.RawMessage(`"1"`)})
		skipped = h.update(contract.StepUpdate.Name, contract.StepRequest{Step: "held", Action: api.SkipStep})
	}, time.Hour)
	h.start(t, definition, `{}`)
	require.True(t, refused.Refused)
	require.ErrorContains(t, refused.Err, "the run's outputs would have 1048579 bytes, and may have 1048576")
	require.False(t, skipped.Refused)
	require.Equal(t, contract.Done{}, skipped.Value)
	require.LessOrEqual(t, h.outcome(t).OutputBytes(), job.MaxOutputsBytes)
}
