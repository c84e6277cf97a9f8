package activities_test

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// stella_agent_healing_actions_total counts what has ended, stella_agent_healing_cycle_duration_seconds each look.
func TestHealingMetricsMove(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metrics := activities.NewHealingMetrics(registry)
	for range 2 {
		require.NoError(t, metrics.CountHealing(t.Context(), fleet.HealingRecord{Type: fleet.HealDrain,
			Status: fleet.HealingSucceeded}))
	}
	f := &fakeQueues{fakeFleet: fakeFleet{names: []string{"c"}, views: map[string]contract.ClusterView{
		"c": {Cluster: fleet.Cluster{Config: fleet.ClusterConfig{Name: "c"}}}}}}
	control := activities.Control{Client: f, Namespace: "default", Cycles: metrics}
	_, err := control.ExamineFleet(t.Context(), contract.ExamineInput{})
	require.NoError(t, err)
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 2)
	require.Equal(t, "stella_agent_healing_actions_total", families[0].GetName())
	require.InDelta(t, 2, families[0].GetMetric()[0].GetCounter().GetValue(), 0)
	require.Equal(t, "stella_agent_healing_cycle_duration_seconds", families[1].GetName())
	require.EqualValues(t, 1, families[1].GetMetric()[0].GetHistogram().GetSampleCount())
}

// signalled is a fleet whose clusters take signals.
type signalled struct {
	fakeFleet
	lost map[string]contract.HubLost // by workflow
	deaf string                      // a workflow that takes none
}

func (f *signalled) SignalWorkflow(_ context.Context, workflowID, _, _ string, arg any) error {
	if workflowID == f.deaf {
		return serviceerror.NewInvalidArgument("too large")
	}
	f.lost[workflowID] = arg.(contract.HubLost)
	return nil
}

// mainstay_worker_hubs_lost_total counts the hubs that were announced to all clusters.
func TestLostHubsAreCounted(t *testing.T) {
	t.Parallel()
	f := &signalled{fakeFleet: fakeFleet{names: []string{"a", "b"}}, lost: map[string]contract.HubLost{}}
	lost := prometheus.NewCounter(prometheus.CounterOpts{Name: "mainstay_worker_hubs_lost_total"})
	control := activities.Control{Client: f, Namespace: "default", Lost: lost}
	require.NoError(t, control.AnnounceHubLost(t.Context(), contract.HubLost{Hub: "h1"}))
	require.Equal(t, map[string]contract.HubLost{"cluster/a": {Hub: "h1"}, "cluster/b": {Hub: "h1"}}, f.lost)
	require.InDelta(t, 1, testutil.ToFloat64(lost), 0)
}

// A cluster that cannot be told that a hub is lost keeps no other from being told.
func TestAllClustersAreToldOfALostHub(t *testing.T) {
	t.Parallel()
	f := &signalled{fakeFleet: fakeFleet{names: []string{"a", "b", "c"}}, lost: map[string]contract.HubLost{},
		deaf: "cluster/a"}
	control := activities.Control{Client: f, Namespace: "default"}
	err := control.AnnounceHubLost(t.Context(), contract.HubLost{Hub: "h1"})
	require.ErrorContains(t, err, "signal cluster a: too large", "it is tried again")
	require.Len(t, f.lost, 2)
}
