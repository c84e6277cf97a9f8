package telemetry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestSDKMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	base := NewSDKMetrics(r).WithTags(map[string]string{"namespace": "default", "client_name": "temporal_go",
		"task_queue": "none", "operation": "Start"}).WithTags(map[string]string{"operation": "none"})
	base.Counter("temporal_request").Inc(2)
	// other tags under one name
	base.WithTags(map[string]string{"operation": "Poll"}).Counter("temporal_request").Inc(1)
	base.WithTags(map[string]string{"operation": "Poll"}).Counter("temporal_request").Inc(1)
	base.Counter("temporal_local_activity_total").Inc(1)
	base.Gauge("temporal_num_pollers").Update(3)
	base.Timer("temporal_request_latency").Record(20 * time.Millisecond)

	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(`
# HELP temporal_request_total A metric of the Temporal SDK; its documentation says what it means.
# TYPE temporal_request_total counter
temporal_request_total{namespace="default"} 2
temporal_request_total{namespace="default",operation="Poll"} 2
# HELP temporal_local_activity_total A metric of the Temporal SDK; its documentation says what it means.
# TYPE temporal_local_activity_total counter
temporal_local_activity_total{namespace="default"} 1
# HELP temporal_num_pollers A metric of the Temporal SDK; its documentation says what it means.
# TYPE temporal_num_pollers gauge
temporal_num_pollers{namespace="default"} 3
`), "temporal_request_total", "temporal_local_activity_total", "temporal_num_pollers"))
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "temporal_request_latency_seconds" {
			require.EqualValues(t, 1, f.GetMetric()[0].GetHistogram().GetSampleCount())
			require.InDelta(t, 0.02, f.GetMetric()[0].GetHistogram().GetSampleSum(), 1e-9)
			return
		}
	}
	t.Fatal("the timer is not there")
}

func TestTemporalUp(t *testing.T) {
	t.Parallel()
	r := NewRegistry("v1")
	var answer error
	WatchTemporal(r, func(context.Context) error { return answer })
	for _, c := range []struct {
		err  error
		want string
	}{{nil, "1"}, {errors.New("away"), "0"}} {
		answer = c.err
		require.NoError(t,
			testutil.GatherAndCompare(r,
				strings.NewReader(
					"# HELP mainstay_temporal_up 1 when Temporal answers this process, else 0.\n# TYPE mainstay_temporal_up gauge\nmainstay_temporal_up "+c.want+"\n"), "mainstay_temporal_up"))
	}
	require.Equal(t, 1, testutil.CollectAndCount(r, "mainstay_build_info"))
}
