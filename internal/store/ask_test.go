package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	querypb "go.temporal.io/api/query/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// movesOn rejects queries because the workflow's run has ended so, once for each, and then answers.
type movesOn struct {
	client.Client
	ended  []enumspb.WorkflowExecutionStatus
	answer any
}

func (m *movesOn) QueryWorkflowWithOptions(
	context.Context, *client.QueryWorkflowWithOptionsRequest,
) (*client.QueryWorkflowWithOptionsResponse, error) {
	if len(m.ended) > 0 {
		status := m.ended[0]
		m.ended = m.ended[1:]
		return &client.QueryWorkflowWithOptionsResponse{QueryRejected: &querypb.QueryRejected{Status: status}}, nil
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(m.answer)
	return &client.QueryWorkflowWithOptionsResponse{QueryResult: client.NewValue(payloads)}, err
}

// A workflow that goes on in a new run while it is asked is there: only one that has ended was deleted.
func TestWhatContinuesAsNewIsThere(t *testing.T) {
	t.Parallel()
	const goesOn, ended = enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	asked := func(answer any, ended ...enumspb.WorkflowExecutionStatus) store.Store {
		return store.Store{Client: &movesOn{ended: ended, answer: answer}}
	}
	c := contract.ClusterView{Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: "c"}}}
	view, err := asked(c, goesOn, goesOn).Clusters().View(t.Context(), "c")
	require.NoError(t, err)
	require.Equal(t, "c", view.Config.Name)
	_, err = asked(c, goesOn, ended).Clusters().View(t.Context(), "c")
	require.Equal(t, store.NotFound, store.KindOf(err))
	j, err := asked(job.Job{Version: 3}, goesOn).Jobs().Get(t.Context(), "j")
	require.NoError(t, err)
	require.Equal(t, 3, j.Version)
	_, err = asked(job.Job{}, ended).Jobs().Get(t.Context(), "j")
	require.Equal(t, store.NotFound, store.KindOf(err))
}
