package activities_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	sdktestsuite "go.temporal.io/sdk/testsuite"

	"mainstay.dev/mainstay/activities"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// stella_agent_healing_actions_total counts what has ended, stella_agent_healing_cycle_duration_seconds each look.
func TestHealingMetricsMove(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metrics := activities.NewHealingMetrics(registry)
	for range 2 {
		require.NoError(t, metrics.CountHealing(t.Context(), api.HealingRecord{Type: api.HealDrain,
			Status: api.HealingSucceeded}))
	}
	f := &fakeQueues{fakeFleet: fakeFleet{names: []string{"c"}, views: map[string]contract.ClusterView{
		"c": {Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: "c"}}}}}}
	control := activities.Control{Client: f, Namespace: "default", Cycles: metrics}
	_, err := control.ExamineFleet(t.Context(), contract.ExamineInput{})
	require.NoError(t, err)
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 2)
	require.Equal(t, "stella_agent_healing_actions_total", families[0].GetName())
	counts := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		counts[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
	}
	require.InDelta(t, 2, counts["drain_agent succeeded"], 0)
	require.Contains(t, counts, "drain_agent failed", "the first failure is an increase")
	require.Equal(t, "stella_agent_healing_cycle_duration_seconds", families[1].GetName())
	require.EqualValues(t, 1, families[1].GetMetric()[0].GetHistogram().GetSampleCount())
}

// signalled is a fleet whose clusters take signals.
type signalled struct {
	fakeFleet
	lost    map[string]contract.HubLost // by workflow
	told    []string                    // workflows, in order
	deaf    string                      // a workflow that takes none
	refusal error                       // what it says
	silent  []string                    // workflows that do not answer
}

func (f *signalled) SignalWorkflow(ctx context.Context, workflowID, _, _ string, arg any) error {
	f.told = append(f.told, workflowID)
	if slices.Contains(f.silent, workflowID) {
		<-ctx.Done()
		return ctx.Err()
	}
	if workflowID == f.deaf {
		return f.refusal
	}
	f.lost[workflowID] = arg.(contract.HubLost)
	return nil
}

// announcing are tries to announce a lost hub.
type announcing struct {
	*activities.Control
	left []string // by the last try's heartbeat
}

func (a *announcing) try(lost contract.HubLost) error {
	var suite sdktestsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(a.AnnounceHubLost)
	if a.left != nil {
		env.SetHeartbeatDetails(a.left)
	}
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		_ = details.Get(&a.left)
	})
	_, err := env.ExecuteActivity(a.AnnounceHubLost, lost)
	return err
}

// mainstay_worker_hubs_lost_total counts the hubs that were announced to all clusters.
func TestLostHubsAreCounted(t *testing.T) {
	t.Parallel()
	f := &signalled{fakeFleet: fakeFleet{names: []string{"a", "b"}}, lost: map[string]contract.HubLost{}}
	lost := prometheus.NewCounter(prometheus.CounterOpts{Name: "mainstay_worker_hubs_lost_total"})
	control := activities.Control{Client: f, Namespace: "default", Lost: lost}
	require.NoError(t, (&announcing{Control: &control}).try(contract.HubLost{Hub: "h1"}))
	require.Equal(t, map[string]contract.HubLost{"cluster/a": {Hub: "h1"}, "cluster/b": {Hub: "h1"}}, f.lost)
	require.InDelta(t, 1, testutil.ToFloat64(lost), 0)
}

// A cluster that cannot be told that a hub is lost keeps no other from being told, and has none told again: agents may
// be with a new process of the hub by then. One that takes no such signal at all does not keep the hub from its lease.
func TestAllClustersAreToldOfALostHubOnce(t *testing.T) {
	t.Parallel()
	invalid, away := serviceerror.NewInvalidArgument("too large"), serviceerror.NewUnavailable("away")
	all := []string{"cluster/a", "cluster/b", "cluster/c"}
	for name, c := range map[string]struct {
		refusal error
		held    bool
		first   []string // whom the first try asks
		second  []string // and the second
	}{
		"it is away":            {away, false, all, all[:1]},
		"it refuses":            {invalid, false, all, nil},
		"it held its own":       {away, true, all[:1], all[:1]},
		"it refuses its own":    {invalid, true, all[:1], all[:1]},
		"it is not there":       {serviceerror.NewNotFound("gone"), false, all, nil},
		"all of them are there": {nil, false, all, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &signalled{fakeFleet: fakeFleet{names: []string{"a", "b", "c"}}, lost: map[string]contract.HubLost{},
				deaf: "cluster/a", refusal: c.refusal}
			lost := contract.HubLost{Hub: "h1"}
			if c.held {
				lost.Held, lost.Cluster = true, "a"
			}
			tries := &announcing{Control: &activities.Control{Client: f, Namespace: "default"}}
			err := tries.try(lost)
			require.Equal(t, c.first, f.told)
			if c.second == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "signal cluster a: "+c.refusal.Error(), "it is tried again")
			f.told, f.deaf = nil, ""
			require.NoError(t, tries.try(lost))
			require.Equal(t, c.second, f.told)
		})
	}
}

// Clusters that do not answer keep no other from being told, by the next try at the latest.
func TestSilentClustersKeepNoOtherFromBeingToldOfALostHub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := []string{"a", "b", "c", "d", "e"}
		f := &signalled{fakeFleet: fakeFleet{names: append(silent, "f")}, lost: map[string]contract.HubLost{}}
		for _, name := range silent {
			f.silent = append(f.silent, contract.ClusterWorkflowID(name))
		}
		tries := &announcing{Control: &activities.Control{Client: f, Namespace: "default"}}
		began := time.Now()
		require.Error(t, tries.try(contract.HubLost{Hub: "h1"}))
		require.Less(t, time.Since(began), 30*time.Second, "the activity's own timeout")
		require.Equal(t, f.silent, f.told)
		f.told = nil
		require.Error(t, tries.try(contract.HubLost{Hub: "h1"}))
		require.Equal(t, "cluster/f", f.told[0])
		require.Contains(t, f.lost, "cluster/f")
		require.Equal(t, silent, slices.Sorted(slices.Values(tries.left)))
	})
}
