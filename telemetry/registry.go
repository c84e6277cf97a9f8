// Package telemetry is what a process tells of itself: the registry of its metrics, those of the Temporal SDK, and its
// traces. The parts define their own metrics and are handed the registry; nothing here is global but OpenTelemetry's
// tracer provider, which is off unless the environment asks for it.
package telemetry

import (
	"context"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// temporalLimit bounds one look at Temporal when metrics are asked for.
const temporalLimit = 2 * time.Second

// NewRegistry makes a process's registry, with the metrics of Go, of the process and of the build.
func NewRegistry(version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "mainstay_build_info",
		Help:        "1, with the version of Mainstay and of Go that built it.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version()}})
	build.Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build)
	return r
}

// WatchTemporal registers a metric that says whether Temporal answers check. It looks when it is asked for.
func WatchTemporal(r prometheus.Registerer, check func(context.Context) error) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "mainstay_temporal_up",
		Help: "1 when Temporal answers this process, else 0."}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), temporalLimit)
		defer cancel()
		if check(ctx) != nil {
			return 0
		}
		return 1
	}))
}
