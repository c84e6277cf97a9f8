package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// A cluster starts a sync when its hubs report different states, and again later when that did not help.
func TestClusterSyncsStates(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var syncs []time.Time
	run.OnWorkflow(contract.StateSyncWorkflow, mock.Anything,
		mock.Anything).Return(func(ctx workflow.Context, in contract.SyncInput) (api.SyncReport, error) {
		syncs = append(syncs, workflow.Now(ctx))
		return api.SyncReport{}, nil
	})
	tell := func(hub string, digests ...string) {
		run.SignalWorkflow(contract.StatesSignal.Name, contract.StatesChanged{Hub: hub, Digests: digests})
	}
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a")) })
	run.at(2*time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h2", "b")) })
	run.at(10*time.Second, func() { tell("h1", "d1") })
	run.at(11*time.Second, func() { tell("h2", "d1") })
	run.at(20*time.Second, func() { require.Empty(t, syncs); tell("h1", "d2") })
	run.at(time.Minute, func() { require.Len(t, syncs, 2, "at once, and once more after 30 s"); tell("h2", "d2") })
	run.at(time.Hour, func() {
		require.Len(t, syncs, 2)
		run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true})
	})
	run.start(api.ClusterConfig{ReplicationMode: api.ActivePassive})
	require.NoError(t, run.GetWorkflowError())
	require.Equal(t, 30*time.Second, syncs[1].Sub(syncs[0]))
}

// A leader that writes while a sync is under way, or just after, is not kept waiting as if syncs did not help.
func TestClusterSyncsSoonAfterChanges(t *testing.T) {
	t.Parallel()
	run := newCluster(t)
	var syncs []time.Time
	sync := func(ctx workflow.Context, _ contract.SyncInput) (api.SyncReport, error) {
		syncs = append(syncs, workflow.Now(ctx))
		return api.SyncReport{}, nil
	}
	run.OnWorkflow(contract.StateSyncWorkflow, mock.Anything, mock.Anything).Return(sync)
	tell := func(digests ...string) {
		run.SignalWorkflow(contract.StatesSignal.Name, contract.StatesChanged{Hub: "h1", Digests: digests})
	}
	run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
	run.at(10*time.Second, func() { tell("d1", "d2") })
	run.at(11*time.Second, func() { tell("d1", "d3") })
	run.at(20*time.Second, func() { tell("d3") })
	run.at(time.Hour, func() { run.update(contract.DeleteUpdate.Name, contract.DeleteRequest{Force: true}) })
	run.start(api.ClusterConfig{ReplicationMode: api.ActivePassive})
	require.NoError(t, run.GetWorkflowError())
	require.Len(t, syncs, 2)
	require.Equal(t, 6*time.Second, syncs[1].Sub(syncs[0]), "5 s after the change")
}
