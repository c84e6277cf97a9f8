package store

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// A cluster that much is wanted of answers late, which must not lift the bound.
func TestUnknownAgentsAreBoundedWhileTheirClusterDoesNotAnswer(t *testing.T) {
	t.Parallel()
	var p Pins
	admit := func(agent string, err error) error {
		return p.Admit(t.Context(), &api.TaskSpec{Cluster: "c", Tenant: "acme", Agent: agent},
			func(context.Context, string) (view contract.ClusterView, _ error) {
				view.Members = []cluster.Member{{AgentID: "here"}}
				return view, err
			})
	}
	require.NoError(t, admit("here", nil))
	p.members = map[string]membership{"c": {agents: p.members["c"].agents}} // it is to be asked anew
	for i := range mostStrangeAgents {
		require.NoError(t, admit(fmt.Sprint("ghost-", i), errors.New("no answer")))
	}
	require.Equal(t, Refused, KindOf(admit("one-more", errors.New("no answer"))))
	require.NoError(t, admit("here", errors.New("no answer")), "it was known before")
}
