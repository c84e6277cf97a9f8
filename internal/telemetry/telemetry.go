// Package telemetry is what a process reports about itself: the registry of its metrics, those of the Temporal SDK, and
// its traces. The parts define their own metrics and get the registry; nothing here is global but OpenTelemetry's
// tracer provider, which is off unless the environment asks for it.
package telemetry

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"

	"mainstay.dev/mainstay/internal/telemetry/tracing"
)

// sdkHelp is the help text of every metric of the Temporal SDK: which there are, and what they mean, is its own matter.
const sdkHelp = "A metric of the Temporal SDK; its documentation says what it means."

// sdkBuckets are seconds: from calls within a host to activities of an hour.
var sdkBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600}

// telling reports whether a tag says anything: the SDK fills those that do not apply, and names itself.
func telling(name, value string) bool { return name != "client_name" && value != "" && value != "none" }

// NewSDKMetrics registers the metrics of the Temporal SDK, and returns the handler to dial Temporal with. They are
// named as Temporal's dashboards name them: counters end in _total, times in _seconds. The SDK leaves out what happens
// while a workflow is replayed.
func NewSDKMetrics(r prometheus.Registerer) client.MetricsHandler {
	all := &sdkMetrics{made: map[string]prometheus.Collector{}}
	r.MustRegister(all)
	return sdkHandler{all: all}
}

// sdkMetrics are the metrics that the SDK has made so far, by name and tags. It describes none of them beforehand: the
// SDK does not list them, and gives one name with differing tags.
type sdkMetrics struct {
	mu   sync.RWMutex
	made map[string]prometheus.Collector
}

// Describe implements prometheus.Collector.
func (*sdkMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *sdkMetrics) Collect(metrics chan<- prometheus.Metric) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, m := range s.made {
		m.Collect(metrics)
	}
}

// metric is the metric of a name and tags; make makes it at its first use.
func metric[M prometheus.Collector](s *sdkMetrics, key string, make func() M) M {
	s.mu.RLock()
	known := s.made[key]
	s.mu.RUnlock()
	if known == nil {
		s.mu.Lock()
		if known = s.made[key]; known == nil {
			known = make()
			s.made[key] = known
		}
		s.mu.Unlock()
	}
	m, _ := known.(M) // the name ends differently for each kind
	return m
}

// sdkHandler makes metrics with certain tags.
type sdkHandler struct {
	all  *sdkMetrics
	tags prometheus.Labels
	key  string // of the tags
}

// WithTags implements client.MetricsHandler.
func (h sdkHandler) WithTags(tags map[string]string) client.MetricsHandler {
	merged := maps.Clone(h.tags)
	if merged == nil {
		merged = prometheus.Labels{}
	}
	for name, value := range tags {
		if delete(merged, name); telling(name, value) {
			merged[name] = value
		}
	}
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		key.WriteString(name + "=" + strconv.Quote(merged[name]) + ",")
	}
	return sdkHandler{all: h.all, tags: merged, key: key.String()}
}

// Counter implements client.MetricsHandler.
func (h sdkHandler) Counter(name string) client.MetricsCounter {
	name = strings.TrimSuffix(name, "_total") + "_total"
	return sdkCounter{metric(h.all, name+"{"+h.key, func() prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: sdkHelp, ConstLabels: h.tags})
	})}
}

// Gauge implements client.MetricsHandler.
func (h sdkHandler) Gauge(name string) client.MetricsGauge {
	return sdkGauge{metric(h.all, name+"{"+h.key, func() prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: sdkHelp, ConstLabels: h.tags})
	})}
}

// Timer implements client.MetricsHandler.
func (h sdkHandler) Timer(name string) client.MetricsTimer {
	name += "_seconds"
	return sdkTimer{metric(h.all, name+"{"+h.key, func() prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: sdkHelp, ConstLabels: h.tags,
			Buckets: sdkBuckets})
	})}
}

type sdkCounter struct{ prometheus.Counter }

// Inc implements client.MetricsCounter.
func (c sdkCounter) Inc(n int64) { c.Add(float64(n)) }

type sdkGauge struct{ prometheus.Gauge }

// Update implements client.MetricsGauge.
func (g sdkGauge) Update(value float64) { g.Set(value) }

type sdkTimer struct{ prometheus.Histogram }

// Record implements client.MetricsTimer.
func (t sdkTimer) Record(d time.Duration) { t.Observe(d.Seconds()) }

// Interceptors carry traces through Temporal: give them to the client, which hands them to its workers. There are none
// while tracing is off. Queries are left out: metrics and pages ask them all the time.
func Interceptors(t *tracing.Tracing) ([]interceptor.ClientInterceptor, error) {
	if !t.On() {
		return nil, nil
	}
	made, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{
		Tracer:                  t.Provider().Tracer("mainstay.dev/mainstay"),
		DisableQueryTracing:     true,
		DisableBaggage:          true,
		AllowInvalidParentSpans: true,
	})
	if err != nil {
		return nil, fmt.Errorf("trace calls of Temporal: %w", err)
	}
	return []interceptor.ClientInterceptor{made}, nil
}

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
