package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/store"
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
