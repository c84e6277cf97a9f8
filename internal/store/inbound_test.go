package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// correctedEvent is a client of a Temporal that has one event, which was replayed with other data.
type correctedEvent struct{ client.Client }

func (correctedEvent) QueryWorkflow(context.Context, string, string, string, ...any) (converter.EncodedValue, error) {
	answer, err := converter.GetDefaultDataConverter().ToPayloads(api.InboundEvent{ID: "e", Corrected: []byte(`{"n": 1}`)})
	return client.NewValue(answer), err
}

// The data of a replay may have 256 KiB, and a page of a list 200 events.
func TestListsOfEventsHaveNoDataOfReplays(t *testing.T) {
	t.Parallel()
	s := store.Store{Client: correctedEvent{}}
	info := &workflowpb.WorkflowExecutionInfo{Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
		Execution: &commonpb.WorkflowExecution{WorkflowId: contract.InboundWorkflowID("e")}}
	one, ok := s.Inbound().Of(t.Context(), info)
	require.True(t, ok)
	require.NotEmpty(t, one.Corrected)
	one, ok = s.InboundEntries().Of(t.Context(), info)
	require.True(t, ok)
	require.Equal(t, "e", one.ID)
	require.Empty(t, one.Corrected)
}
