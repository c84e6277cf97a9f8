package store_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// largeHistory is a Temporal with the history of one array, whose each event has the results of two elements.
type largeHistory struct {
	workflowservice.WorkflowServiceClient
	events []*historypb.HistoryEvent
	asked  int32 // the largest page
}

// historyClient is a client of it.
type historyClient struct {
	client.Client
	history *largeHistory
}

func (c historyClient) WorkflowService() workflowservice.WorkflowServiceClient { return c.history }

func (f *largeHistory) GetWorkflowExecutionHistory(
	_ context.Context, r *workflowservice.GetWorkflowExecutionHistoryRequest, _ ...grpc.CallOption,
) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	f.asked = max(f.asked, r.GetMaximumPageSize())
	from := len(r.GetNextPageToken()) // the token has a byte for each event before the page
	to := min(len(f.events), from+int(r.GetMaximumPageSize()))
	answer := &workflowservice.GetWorkflowExecutionHistoryResponse{
		History: &historypb.History{Events: f.events[from:to]}}
	if to < len(f.events) {
		answer.NextPageToken = []byte(strings.Repeat("x", to))
	}
	return answer, nil
}

// One answer does not hold all that the elements of a large array returned.
func TestResultsAreReadInBoundedPages(t *testing.T) {
	t.Parallel()
	const elements, large = 20, 512 << 10
	output, err := json.Marshal(strings.Repeat("x", large))
	require.NoError(t, err)
	f := &largeHistory{}
	for n := 0; n < elements; n += 2 {
		result, err := converter.GetDefaultDataConverter().ToPayloads(contract.AttemptReport{Elements: []api.ElementResult{
			{Number: n, Outcome: api.AttemptCompleted, Output: output},
			{Number: n + 1, Outcome: api.AttemptCompleted, Output: output}}})
		require.NoError(t, err)
		f.events = append(f.events, &historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
			Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
				ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{Result: result}}})
	}
	arrays := store.Store{Client: historyClient{history: f}}.Arrays()
	var at *store.ResultsAt
	for seen, more := 0, true; more; more = at != nil {
		page, next, err := arrays.Results(t.Context(), &store.Array{}, at, 1000)
		require.NoError(t, err)
		require.NotEmpty(t, page)
		require.LessOrEqual(t, len(page), 5, "2 MiB, and one more")
		for _, r := range page {
			require.Equal(t, seen, r.Element)
			seen++
		}
		if at = next; at == nil {
			require.Equal(t, elements, seen)
		}
	}
	require.LessOrEqual(t, f.asked, int32(8))
	page, _, err := arrays.Results(t.Context(), &store.Array{}, &store.ResultsAt{Skip: -1}, 1)
	require.NoError(t, err)
	require.Len(t, page, 1, "a client may make up a place")
}
