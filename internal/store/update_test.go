package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
)

// busy gives up the first updates, as Temporal does when the workflow moves on at the same moment.
type busy struct {
	client.Client
	giveUp int
	ids    []string
}

func (b *busy) UpdateWorkflow(
	_ context.Context, o client.UpdateWorkflowOptions,
) (client.WorkflowUpdateHandle, error) {
	b.ids = append(b.ids, o.UpdateID)
	if len(b.ids) <= b.giveUp {
		return nil, serviceerror.NewWorkflowNotReady("unexpected workflow task failure")
	}
	return nil, serviceerror.NewNotFound("the end of the test")
}

// full has workflows that have had as many updates as Temporal takes.
type full struct {
	client.Client
	cancelled []string
}

func (*full) UpdateWorkflow(context.Context, client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	return nil, serviceerror.NewFailedPrecondition("The limit on the total number of distinct updates in this " +
		"workflow has been reached (2000). Make sure any duplicate updates share an Update ID")
}

func (f *full) CancelWorkflow(_ context.Context, id, _ string) error {
	f.cancelled = append(f.cancelled, id)
	return nil
}

// What a person cancels is cancelled, and nothing else, even where Temporal takes no more updates.
func TestAWorkflowThatTakesNoMoreUpdatesIsCancelled(t *testing.T) {
	t.Parallel()
	change := func(action contract.ArrayAction) func(context.Context, store.Store) error {
		return func(ctx context.Context, s store.Store) error {
			_, err := store.Update(ctx, s, contract.ArrayUpdate, "w", contract.ArrayRequest{Action: action})
			return err
		}
	}
	for name, c := range map[string]struct {
		do      func(context.Context, store.Store) error
		cancels bool
	}{
		"a task": {func(ctx context.Context, s store.Store) error {
			_, err := store.Update(ctx, s, contract.CancelUpdate, "w", contract.CancelRequest{Reason: "enough"})
			return err
		}, true},
		"a task of a run": {func(ctx context.Context, s store.Store) error {
			_, err := store.Update(ctx, s, contract.CancelUpdate, "w",
				contract.CancelRequest{ForTask: contract.ForTask{Task: "step"}})
			return err
		}, false},
		"a task's priority": {func(ctx context.Context, s store.Store) error {
			_, err := store.Update(ctx, s, contract.ReprioritizeUpdate, "w", contract.ReprioritizeRequest{})
			return err
		}, false},
		"a run": {func(ctx context.Context, s store.Store) error {
			_, err := store.Update(ctx, s, contract.CancelRunUpdate, "w", contract.RunRequest{})
			return err
		}, true},
		"a run's pause": {func(ctx context.Context, s store.Store) error {
			_, err := store.Update(ctx, s, contract.ResumeRunUpdate, "w", contract.RunRequest{})
			return err
		}, false},
		"an array":         {change(contract.CancelArray), true},
		"an array's pause": {change(contract.ResumeArray), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &full{}
			err := c.do(t.Context(), store.Store{Client: f})
			if c.cancels {
				require.NoError(t, err)
				require.Equal(t, []string{"w"}, f.cancelled)
				return
			}
			require.Equal(t, store.Full, store.KindOf(err))
			require.Empty(t, f.cancelled)
		})
	}
}

// same refuses each update, since it would change nothing.
type same struct{ client.Client }

func (same) UpdateWorkflow(context.Context, client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	return refusal{}, nil
}

type refusal struct{ client.WorkflowUpdateHandle }

func (refusal) Get(context.Context, any) error {
	return temporal.NewNonRetryableApplicationError("it has this priority", contract.Refused, nil, contract.Unchanged)
}

func TestWhatWouldChangeNothingIsDone(t *testing.T) {
	t.Parallel()
	_, err := store.Update(t.Context(), store.Store{Client: same{}}, contract.ReprioritizeUpdate, "task/t",
		contract.ReprioritizeRequest{})
	require.NoError(t, err)
}

func TestUpdateIsTriedAgainUnderItsID(t *testing.T) {
	t.Parallel()
	for giveUp, want := range map[int]store.Kind{0: store.NotFound, 3: store.NotFound, 9: store.Unsure} {
		b := &busy{giveUp: giveUp}
		_, err := store.Update(t.Context(), store.Store{Client: b}, contract.CancelUpdate, "task/t", contract.CancelRequest{})
		require.Equal(t, want, store.KindOf(err), giveUp)
		require.Len(t, b.ids, min(giveUp+1, 4))
		for _, id := range b.ids {
			require.NotEmpty(t, id)
			require.Equal(t, b.ids[0], id)
		}
	}
}
