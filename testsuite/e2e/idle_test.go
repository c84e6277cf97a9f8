package e2e

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/api"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/protocol"
)

var defaultTiming = flag.Bool("default-timing", false,
	"let the idle fleet heartbeat as in production: the test takes a minute")

// TestIdleFleetWritesNothing lets 100 idle agents heartbeat a dozen times: no workflow's history may grow.
func TestIdleFleetWritesNothing(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	const agents, heartbeats = 100, 12
	timing := plane.QuickTiming()
	if *defaultTiming {
		timing = cluster.DefaultTiming()
	}
	node := plane.NewNode(t, plane.NodeOptions{Config: hub.Config{Timing: timing}})
	clusterName := node.EnsureCluster(t, api.ClusterConfig{})
	for range agents {
		startAgent(t, agent.Options{HubURLs: []string{node.URL}, Cluster: clusterName, ID: plane.UniqueID("idle")},
			map[string]agent.Handler{"echo": echo})
	}
	require.Eventually(t, func() bool {
		return metric(t, node.Registry, "mainstay_hub_sessions", nil) == agents
	}, patience, 50*time.Millisecond, "all agents register")
	polls := func() float64 {
		return metric(t, node.Registry, "mainstay_http_request_duration_seconds",
			map[string]string{"route": protocol.PollPath, "status": "200"})
	}
	morePolls := func(n float64) {
		t.Helper()
		limit := polls() + n
		require.Eventually(t, func() bool { return polls() >= limit }, 3*time.Minute, 50*time.Millisecond)
	}
	ids := []string{contract.ClusterWorkflowID(clusterName), contract.HubWorkflowID(node.Hub.ID())}
	events := func() (all []string) {
		for _, id := range ids {
			all = append(all, ownEvents(t, id)...)
		}
		return all
	}

	// What the joins began may still end: two equal looks, a round of heartbeats apart, are the start.
	before := events()
	for settled := false; !settled; {
		morePolls(agents)
		now := events()
		settled = slices.Equal(before, now)
		before = now
	}
	morePolls(agents * heartbeats)
	require.Equal(t, before, events(), "heartbeats of idle agents must write nothing")
	require.EqualValues(t, agents, metric(t, node.Registry, "mainstay_hub_sessions", nil),
		"no agent may have been given up meanwhile")
}

// ownEvents describes the events of a workflow's newest run. The hubs of tests that end meanwhile are lost to all
// clusters of the shared Temporal, and spawners that start are told to all; these signals, and the workflow tasks
// between them and the next event, are left out.
func ownEvents(t testing.TB, workflowID string) (events []string) {
	t.Helper()
	foreign := false
	history := plane.Temporal(t).GetWorkflowHistory(t.Context(), workflowID, "", false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		require.NoError(t, err)
		signal := ""
		switch e.GetEventType() {
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
			signal = e.GetWorkflowExecutionSignaledEventAttributes().GetSignalName()
			foreign = signal == contract.HubLostSignal.Name || signal == contract.SpawnerStartsSignal.Name
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED,
			enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
		default:
			foreign = false
		}
		if !foreign {
			events = append(events, strings.TrimSpace(fmt.Sprintf("%s %d %s %s", workflowID, e.GetEventId(),
				e.GetEventType(), signal)))
		}
	}
	return events
}

// metric is the sum of a metric's values over the series with the labels; of a histogram, its count.
func metric(t testing.TB, from prometheus.Gatherer, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			matching := 0
			for _, l := range m.GetLabel() {
				if want, asked := labels[l.GetName()]; asked && want == l.GetValue() {
					matching++
				}
			}
			if matching == len(labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}
