package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
)

func TestKindOf(t *testing.T) {
	t.Parallel()
	refused := temporal.NewApplicationError("it is paused", contract.Refused)
	for name, c := range map[string]struct {
		err  error
		want store.Kind
	}{
		"none":            {nil, store.Other},
		"unknown":         {errors.New("?"), store.Other},
		"no workflow":     {serviceerror.NewNotFound(""), store.NotFound},
		"there is one":    {serviceerror.NewWorkflowExecutionAlreadyStarted("", "", ""), store.Exists},
		"a schedule":      {serviceerror.NewAlreadyExists(""), store.Exists},
		"refused":         {refused, store.Refused},
		"busy":            {temporal.NewApplicationError("", contract.Busy), store.Unavailable},
		"outdated":        {temporal.NewApplicationError("", contract.Outdated), store.Outdated},
		"another failure": {temporal.NewApplicationError("", "Other"), store.Other},
		"away":            {serviceerror.NewUnavailable(""), store.Unavailable},
		"too late":        {context.DeadlineExceeded, store.Unavailable},
		"update unanswered": {client.NewWorkflowUpdateServiceTimeoutOrCanceledError(context.DeadlineExceeded),
			store.Unavailable},
		"paused workflow": {serviceerror.NewFailedPrecondition(""), store.Blocked},
		"too many updates": {serviceerror.NewFailedPrecondition(
			"The limit on the total number of distinct updates in this workflow has been reached (2000)."), store.Full},
		"a wrong token":   {serviceerror.NewInvalidArgument(""), store.Invalid},
		"an older server": {serviceerror.NewUnimplemented(""), store.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, store.KindOf(c.err))
			if c.err != nil {
				require.Equal(t, c.want, store.KindOf(fmt.Errorf("while testing: %w", c.err)))
			}
		})
	}
	require.Equal(t, "it is paused", store.Refusal(fmt.Errorf("update: %w", refused)))
}

// away is a Temporal that answers no change in time.
type away struct{ client.Client }

func (away) UpdateWorkflow(context.Context, client.UpdateWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	return nil, serviceerror.NewUnavailable("away")
}

func TestAnUnansweredChangeMayBeMadeYet(t *testing.T) {
	t.Parallel()
	clusters := store.Store{Client: away{}}.Clusters()
	_, err := store.UpdateCluster(t.Context(), clusters, contract.PauseUpdate, "c", contract.PauseRequest{})
	require.Equal(t, store.Unsure, store.KindOf(err))
	_, err = store.UpdateCluster(t.Context(), clusters, contract.PauseUpdate, "No Name", contract.PauseRequest{})
	require.Equal(t, store.NotFound, store.KindOf(err), "no cluster can have such a name, so Temporal is not asked")
}
