package job_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// TestEachCorrectionHasAKeyOfItsOwn, which is the same wherever it is made again.
func TestEachCorrectionHasAKeyOfItsOwn(t *testing.T) {
	t.Parallel()
	keys := func() (all []string) {
		step := job.PlannedStep{ID: "a", Step: api.Step{Check: &api.StepCheck{Correct: api.Corrections{Attempts: 3}}}}
		l := job.Ledger{Steps: []api.StepEntry{{Step: "a", IdempotencyKey: job.IdempotencyKey("r", "a"),
			StepWork: api.StepWork{TaskID: job.TaskID("r", "a")}}}}
		for range 4 {
			all = append(all, l.Steps[0].IdempotencyKey)
			l.Correct(&step, []string{"wrong"}, false, json.RawMessage(`1`), time.Now())
		}
		return all
	}
	first := keys()
	require.Equal(t, first, keys())
	slices.Sort(first)
	require.Len(t, slices.Compact(first), 4)
	require.NotContains(t, first, "")
}

// A verdict may say much, of each result of each step. The ledger of a run must fit into a message of Temporal's.
func TestCorrectionsFitIntoAMessage(t *testing.T) {
	t.Parallel()
	plan, ledger := job.Plan{}, job.Ledger{}
	for n := range job.MaxSteps {
		id := fmt.Sprint("s", n)
		plan.Steps = append(plan.Steps, job.PlannedStep{ID: id,
			Step: api.Step{Check: &api.StepCheck{Correct: api.Corrections{Attempts: job.MaxCorrections}}}})
		ledger.Steps = append(ledger.Steps, api.StepEntry{Step: id})
	}
	var wrong []string
	for range 32 {
		wrong = append(wrong, strings.Repeat("e", 1000))
	}
	for n := range plan.Steps {
		for i := range job.MaxCorrections + 1 {
			escalated := ledger.Correct(&plan.Steps[n], wrong, false, json.RawMessage(`1`), time.Now())
			require.Equal(t, i == job.MaxCorrections, escalated)
		}
	}
	require.Len(t, ledger.Steps[0].Corrections[0].Errors, 32, "one verdict is kept whole")
	require.NotEmpty(t, ledger.Steps[job.MaxSteps-1].Corrections[0].Errors)
	text, err := json.Marshal(ledger)
	require.NoError(t, err)
	require.Less(t, len(text), 1<<20)

	e := &ledger.Steps[0]
	for e.Forgiven = len(e.Corrections); len(e.Corrections) < 300; {
		ledger.Correct(&plan.Steps[0], wrong, false, json.RawMessage(`"`+strings.Repeat("x", 10_000)+`"`), time.Now())
	}
	payload := job.WithFeedback(e, json.RawMessage(`{}`))
	require.Less(t, len(payload), 200_000)
	var told struct{ Feedback []api.Correction }
	require.NoError(t, json.Unmarshal(payload, &told))
	require.Len(t, told.Feedback, 300, "calls of tools go by their number")
}
