package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	sdktestsuite "go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/worker"
	"mainstay.dev/mainstay/workflows/workflowtest"
	"mainstay.dev/sdk/api"
)

// bulk is a Bulk workflow under test.
type bulk struct {
	*sdktestsuite.TestWorkflowEnvironment
	pages []contract.BulkPageInput
}

func newBulk(page func(b *bulk, in contract.BulkPageInput) (contract.BulkPageResult, error)) *bulk {
	b := &bulk{TestWorkflowEnvironment: workflowtest.NewEnvironment()}
	worker.RegisterWorkflows(b)
	b.RegisterActivityWithOptions(func(_ context.Context, in contract.BulkPageInput) (contract.BulkPageResult, error) {
		b.pages = append(b.pages, in)
		return page(b, in)
	}, activity.RegisterOptions{Name: contract.BulkPageActivity.Name})
	return b
}

// threePages are pages of one task done each.
func threePages(b *bulk, _ contract.BulkPageInput) (contract.BulkPageResult, error) {
	result := contract.BulkPageResult{Counts: contract.BulkCounts{Matched: 2, Done: 1, Skipped: 1}}
	if len(b.pages) < 3 {
		result.Next = []byte(fmt.Sprint(len(b.pages)))
	}
	return result, nil
}

func TestBulkReadsAllPages(t *testing.T) {
	t.Parallel()
	b := newBulk(threePages)
	b.ExecuteWorkflow(contract.BulkWorkflow, contract.BulkInput{ID: "b-1", Expected: 7,
		Spec: contract.BulkSpec{Action: api.BulkCancel, Filter: api.TaskFilter{Type: "x"}}})
	require.NoError(t, b.GetWorkflowError())
	var state contract.BulkState
	require.NoError(t, b.GetWorkflowResult(&state))
	require.Equal(t, api.BulkCompleted, state.Status)
	require.Equal(t, []int{7, 6, 3, 3}, []int{state.Expected, state.Matched, state.Done, state.Skipped})
	require.Equal(t, []string{"", "1", "2"}, []string{string(b.pages[0].Token), string(b.pages[1].Token),
		string(b.pages[2].Token)})
	require.False(t, b.pages[0].Spec.Filter.SubmittedBefore.IsZero(), "what is submitted later was not meant")
	require.Equal(t, b.pages[0].Spec, b.pages[2].Spec, "a page token belongs to its query")
}

func TestBulkOfIDs(t *testing.T) {
	t.Parallel()
	ids := make([]string, 2*contract.BulkPageSize+1)
	for i := range ids {
		ids[i] = fmt.Sprintf("t-%03d", i)
	}
	b := newBulk(func(_ *bulk, in contract.BulkPageInput) (contract.BulkPageResult, error) {
		return contract.BulkPageResult{Counts: contract.BulkCounts{Matched: len(in.IDs), Done: len(in.IDs)}}, nil
	})
	b.ExecuteWorkflow(contract.BulkWorkflow, contract.BulkInput{ID: "b-1",
		Spec: contract.BulkSpec{Action: api.BulkCancel, IDs: ids}})
	require.NoError(t, b.GetWorkflowError())
	var state contract.BulkState
	require.NoError(t, b.GetWorkflowResult(&state))
	require.Equal(t, len(ids), state.Done)
	require.Len(t, b.pages, 3)
	require.Equal(t, ids[200:], b.pages[2].IDs)
}

// It ends after the page under way.
func TestBulkIsStopped(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(b *bulk){
		"by update": func(b *bulk) {
			b.UpdateWorkflow(contract.CancelUpdate.Name, "", &workflowtest.Answer{},
				contract.CancelRequest{Reason: "enough"})
		},
		"by cancelling the workflow": func(b *bulk) { b.CancelWorkflow() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBulk(func(b *bulk, in contract.BulkPageInput) (contract.BulkPageResult, error) {
				result, err := threePages(b, in)
				result.Next = []byte("there are always more")
				return result, err
			})
			b.SetOnActivityCompletedListener(func(*activity.Info, converter.EncodedValue, error) {
				if len(b.pages) == 2 {
					stop(b)
				}
			})
			b.ExecuteWorkflow(contract.BulkWorkflow, contract.BulkInput{ID: "b-1",
				Spec: contract.BulkSpec{Action: api.BulkCancel, Filter: api.TaskFilter{Type: "x"}}})
			var cancelled *temporal.CanceledError
			require.True(t, errors.As(b.GetWorkflowError(), &cancelled), "%v", b.GetWorkflowError())
			var state contract.BulkState
			require.NoError(t, cancelled.Details(&state))
			require.Equal(t, api.BulkCancelled, state.Status)
			require.NotEmpty(t, state.Why)
			require.GreaterOrEqual(t, state.Done, 2)
			require.Equal(t, len(b.pages), state.Done, "the page under way counts")
		})
	}
}

func TestBulkFails(t *testing.T) {
	t.Parallel()
	b := newBulk(func(b *bulk, in contract.BulkPageInput) (contract.BulkPageResult, error) {
		if len(b.pages) == 1 {
			return threePages(b, in)
		}
		return contract.BulkPageResult{}, temporal.NewNonRetryableApplicationError("Temporal refuses the filter",
			contract.Refused, nil)
	})
	b.ExecuteWorkflow(contract.BulkWorkflow, contract.BulkInput{ID: "b-1",
		Spec: contract.BulkSpec{Action: api.BulkCancel, Filter: api.TaskFilter{Type: "x"}}})
	var failed *temporal.ApplicationError
	require.True(t, errors.As(b.GetWorkflowError(), &failed), "%v", b.GetWorkflowError())
	var state contract.BulkState
	require.NoError(t, failed.Details(&state))
	require.Equal(t, api.BulkFailed, state.Status)
	require.Equal(t, 1, state.Done, "what was done before is told")
	require.Contains(t, state.Why, "Temporal refuses the filter")
}

func TestBulkContinuesAsNew(t *testing.T) {
	t.Parallel()
	b := newBulk(threePages)
	b.SetContinueAsNewSuggested(true)
	b.ExecuteWorkflow(contract.BulkWorkflow, contract.BulkInput{ID: "b-1",
		Spec: contract.BulkSpec{Action: api.BulkCancel, Filter: api.TaskFilter{Type: "x"}},
		Carried: &contract.BulkCarried{Place: contract.BulkPlace{Token: []byte("1")},
			State: contract.BulkState{Status: api.BulkRunning,
				BulkCounts: contract.BulkCounts{Matched: 5, Done: 5}}}})
	var next *workflow.ContinueAsNewError
	require.True(t, errors.As(b.GetWorkflowError(), &next), "%v", b.GetWorkflowError())
	var input contract.BulkInput
	require.NoError(t, contract.Payloads.FromPayloads(next.Input, &input))
	require.Equal(t, 5, input.Carried.State.Done)
	require.Equal(t, "1", string(input.Carried.Place.Token))
	require.Empty(t, b.pages)
}
