package replay

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/api"
)

// TestRecordAccess records tokens being made and revoked. It only runs when asked.
func TestRecordAccess(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	id := plane.UniqueID("access")
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: contract.WorkerQueue},
		contract.AccessWorkflow, contract.AccessInput{})
	require.NoError(t, err)
	for _, name := range []string{"one", "two"} {
		update(t, c, id, contract.CreateTokenUpdate.Name, access.Record{ID: name, Name: name, Kind: api.TokenAPI,
			Role: api.RoleViewer, Hash: access.HashOf(name)})
	}
	update(t, c, id, contract.RevokeTokenUpdate.Name, contract.RevokeTokenRequest{ID: "one"})
	save(t, c, contract.AccessWorkflow, "tokens", id)
}

// TestRecordAncestors records a token being revoked with what it has made by one that is gone. It only runs when asked.
func TestRecordAncestors(t *testing.T) {
	if !*record {
		t.Skip("recording is done by hand: make record")
	}
	c := plane.Temporal(t)
	id := plane.UniqueID("access")
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: contract.WorkerQueue},
		contract.AccessWorkflow, contract.AccessInput{})
	require.NoError(t, err)
	const first, second, third = "00000000000a", "00000000000b", "00000000000c"
	for _, k := range [][2]string{{first, "first-admin"}, {second, first}, {third, second}} {
		update(t, c, id, contract.CreateTokenUpdate.Name, access.Record{ID: k[0], Name: k[0], Kind: api.TokenAPI,
			Role: api.RoleAdmin, Hash: access.HashOf(k[0]), CreatedByID: k[1]})
	}
	update(t, c, id, contract.RevokeTokenUpdate.Name, contract.RevokeTokenRequest{ID: second})
	update(t, c, id, contract.RevokeTokenUpdate.Name, contract.RevokeTokenRequest{ID: first, WithChildren: true})
	save(t, c, contract.AccessWorkflow, "ancestors", id)
}
