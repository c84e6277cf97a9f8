package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/contract"
)

// release gives a person's word that the agents that a cluster's brake holds are really gone.
func release(t *testing.T, c client.Client, cluster string) {
	t.Helper()
	handle, err := c.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: contract.ClusterWorkflowID(cluster), UpdateName: contract.ReleaseBrakeUpdate.Name,
		Args: []any{contract.ReleaseBrakeRequest{Reason: "test"}}, WaitForStage: client.WorkflowUpdateStageCompleted})
	require.NoError(t, err)
	require.NoError(t, handle.Get(t.Context(), nil))
}
