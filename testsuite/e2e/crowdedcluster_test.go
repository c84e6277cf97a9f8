package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	sdkworker "go.temporal.io/sdk/worker"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/api"
)

// A cluster of thousands of members with the longest ids, which all come again as other processes, goes on although ten
// hubs are told of each change: Temporal terminates a workflow that wants more than 4 MiB at once. The hubs are made up.
func TestACrowdedClusterTellsManyHubs(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	const hubs, each, batch = 10, 400, 100
	b := newBench(t, api.ClusterConfig{ReplicationMode: api.ActivePassive, MaxAgents: api.MaxMembers})
	temporal, workflowID := plane.Temporal(t), contract.ClusterWorkflowID(b.cluster)
	random := rand.New(rand.NewPCG(1, 2))
	text := func(n int) string {
		letters := make([]byte, n)
		for i := range letters {
			letters[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"[random.IntN(64)]
		}
		return string(letters)
	}
	var joins [hubs][]cluster.Join
	for hub := range joins {
		w := sdkworker.New(temporal, contract.HubQueue(fmt.Sprint("made-up-", hub)), sdkworker.Options{DisableWorkflowWorker: true})
		w.RegisterActivityWithOptions(func(context.Context, contract.Directive) error { return nil },
			activity.RegisterOptions{Name: contract.DirectActivity.Name})
		require.NoError(t, w.Start())
		defer w.Stop()
		for range each {
			joins[hub] = append(joins[hub], cluster.Join{AgentID: "a" + text(62)})
		}
	}
	for range 2 {
		for hub := range joins {
			for i := range joins[hub] {
				joins[hub][i].Instance = text(64)
			}
		}
		var under sync.WaitGroup
		for hub := range joins {
			under.Go(func() {
				for from := 0; from < each; from += batch {
					request := contract.JoinRequest{Hub: fmt.Sprint("made-up-", hub), Joins: joins[hub][from : from+batch]}
					var answer contract.JoinResponse
					if !assert.Eventually(t, func() bool { // as hubs do, again when the cluster has much to do
						var err error
						answer, err = contract.JoinUpdate.Send(t.Context(), temporal, workflowID, request)
						return store.KindOf(err) != store.Unavailable && assert.NoError(t, err)
					}, patience, 100*time.Millisecond) {
						return
					}
					for _, joined := range answer.Results {
						assert.Empty(t, joined.Refused)
					}
				}
			})
		}
		under.Wait()
	}
	view, err := contract.ViewQuery.Ask(t.Context(), temporal, workflowID)
	require.NoError(t, err)
	require.Len(t, view.Members, hubs*each)
	_, err = contract.DeleteUpdate.Send(t.Context(), temporal, workflowID, contract.DeleteRequest{Force: true})
	require.NoError(t, err, "other tests do not look at so many agents")
}
