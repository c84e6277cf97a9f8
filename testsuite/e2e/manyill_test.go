package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/mainstay/testsuite/slow"
)

// A cycle of thousands of ill agents with long notes keeps to what Temporal takes, and ends.
func TestACycleOfManyIllAgents(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	const agents = 2500
	id := plane.UniqueID("many")
	cycle := plane.HealIll(t, id, agents, strings.Repeat("\x01", 256))
	require.Equal(t, agents, len(cycle.Decisions)+cycle.LeftOut)
	parts := map[int64]int{} // children by the workflow task that began them
	events := plane.Temporal(t).GetWorkflowHistory(t.Context(), id, "", false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		if child := event.GetStartChildWorkflowExecutionInitiatedEventAttributes(); child != nil {
			parts[child.GetWorkflowTaskCompletedEventId()]++
		}
	}
	begun, most := 0, 0
	for _, n := range parts {
		begun, most = begun+n, max(most, n)
	}
	require.Equal(t, 100, begun)
	require.LessOrEqual(t, most, 50)
}
