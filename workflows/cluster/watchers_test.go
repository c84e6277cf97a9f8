package cluster_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// A tenant may have any number of jobs that want an instance on each agent. Temporal takes no more than 2,000 signals
// under way of one workflow, and others must be told too.
func TestAClusterTellsABoundedNumberOfJobs(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var mu sync.Mutex // signals are answered side by side
	told := map[string]int{}
	run.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, contract.AgentsMovedSignal.Name,
		mock.Anything).Return(func(_, id, _, _ string, _ any) error {
		tenant, _, _ := strings.Cut(strings.TrimPrefix(id, "job/"), ":")
		mu.Lock()
		defer mu.Unlock()
		told[tenant]++
		return nil
	})
	for n := range 21 {
		run.at(time.Second+time.Duration(n)*time.Millisecond, func() {
			for i := range 100 {
				run.SignalWorkflow(contract.WatchMembersSignal.Name, fmt.Sprintf("acme:w%d-%d", n, i))
			}
		})
	}
	run.at(2*time.Second, func() {
		for n := range 20 {
			run.SignalWorkflow(contract.WatchMembersSignal.Name, fmt.Sprintf("beta:w%d", n))
		}
	})
	run.at(3*time.Second, func() {
		mu.Lock()
		clear(told)
		mu.Unlock()
		run.update(contract.JoinUpdate.Name, joins("h1", "a"))
	})
	run.at(5*time.Second, func() { run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	run.start(api.ClusterConfig{})
	require.NoError(t, run.GetWorkflowError())
	require.Equal(t, map[string]int{"acme": cluster.MaxWatchers / 2, "beta": 20}, told)
}
