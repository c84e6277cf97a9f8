// Package observability checks what Mainstay tells of itself: that the metrics, their documentation, the dashboards and
// the alert rules fit together.
package observability

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/hub"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/telemetry"
	"mainstay.dev/mainstay/worker"
)

// Roles that tell metrics, in the order in which they are documented.
const (
	Hub     = "hub"
	Gateway = "gateway"
	Worker  = "worker"
	Every   = "every"
)

// Metric is one metric that a role tells, whether it has a value yet or not.
type Metric struct {
	Role, Name, Help string
	Type             dto.MetricType
	Labels           []string
}

// Catalogue lists the metrics of all roles, but for those of Go, of the process and of the Temporal SDK. Nothing is
// started and nobody is called for it.
func Catalogue() ([]Metric, error) {
	temporal, err := client.NewLazyClient(client.Options{})
	if err != nil {
		return nil, err
	}
	defer temporal.Close()
	var all []Metric
	for _, role := range []struct {
		name  string
		start func(r *recorder) error
	}{
		{Every, func(r *recorder) error {
			telemetry.WatchTemporal(r, nil)
			telemetry.NewRegistry("")
			return nil
		}},
		{Hub, func(r *recorder) error {
			_, err := hub.New(hub.Options{ID: "h", Store: store.Store{Client: temporal}, Registerer: r, Key: make([]byte, 32)})
			return err
		}},
		{Gateway, func(r *recorder) error {
			gateway.New(gateway.Options{Store: store.Store{Client: temporal}, Registerer: r}).
				Register(httpapi.New(httpapi.Options{}).API())
			return nil
		}},
		{Worker, func(r *recorder) error {
			worker.NewMetrics(r)
			return nil
		}},
	} {
		r := &recorder{role: role.name}
		if err := role.start(r); err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", role.name, err)
		}
		all = append(all, r.metrics...)
	}
	for _, registry := range []*prometheus.Registry{telemetry.NewRegistry(""), httpMetrics()} {
		all = append(all, described(Every, registry, dto.MetricType_HISTOGRAM)...)
	}
	slices.SortStableFunc(all, func(a, b Metric) int {
		return slices.Compare([]string{roleOrder(a.Role), a.Name}, []string{roleOrder(b.Role), b.Name})
	})
	return all, nil
}

func roleOrder(role string) string {
	return fmt.Sprint(slices.Index([]string{Gateway, Hub, Worker, Every}, role))
}

func httpMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	httpapi.New(httpapi.Options{Registry: r})
	return r
}

// recorder is a Registerer that notes what is registered.
type recorder struct {
	prometheus.Registerer
	role    string
	metrics []Metric
}

// MustRegister implements prometheus.Registerer.
func (r *recorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		kind := dto.MetricType_UNTYPED
		switch c := c.(type) {
		case *prometheus.CounterVec:
			kind = dto.MetricType_COUNTER
		case *prometheus.GaugeVec:
			kind = dto.MetricType_GAUGE
		case *prometheus.HistogramVec:
			kind = dto.MetricType_HISTOGRAM
		case prometheus.Histogram:
			kind = dto.MetricType_HISTOGRAM
		case prometheus.Metric:
			kind = kindOf(c)
		}
		r.metrics = append(r.metrics, described(r.role, c, kind)...)
	}
}

// kindOf is the type of a single metric: the interfaces do not tell a gauge from a counter.
func kindOf(m prometheus.Metric) dto.MetricType {
	if strings.Contains(fmt.Sprintf("%T", m), "histogram") {
		return dto.MetricType_HISTOGRAM
	}
	name, _, _ := parse(m.Desc())
	return kindByName(name)
}

// counterByName are counters whose names, the documents' own, do not say so.
var counterByName = map[string]bool{"stella_agent_partition_failover_count": true}

// kindByName is the type by the naming rules, which the linter checks.
func kindByName(name string) dto.MetricType {
	if strings.HasSuffix(name, "_total") || counterByName[name] {
		return dto.MetricType_COUNTER
	}
	return dto.MetricType_GAUGE
}

var descForm = regexp.MustCompile(
	`^Desc\{fqName: "([^"]*)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

// parse reads a description: its fields are private.
func parse(d *prometheus.Desc) (name, help string, labels []string) {
	parts := descForm.FindStringSubmatch(d.String())
	if parts == nil {
		return "", "", nil
	}
	for _, pair := range strings.Split(parts[3], ",") {
		if label, _, ok := strings.Cut(pair, "="); ok {
			labels = append(labels, label)
		}
	}
	if parts[4] != "" {
		labels = append(labels, strings.Split(parts[4], ",")...)
	}
	return parts[1], strings.ReplaceAll(parts[2], `\"`, `"`), labels
}

// described are the metrics that a collector describes, but those of Go and of the process.
func described(role string, c prometheus.Collector, kind dto.MetricType) []Metric {
	descs := make(chan *prometheus.Desc)
	go func() {
		c.Describe(descs)
		close(descs)
	}()
	var all []Metric
	for d := range descs {
		name, help, labels := parse(d)
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") ||
			strings.HasPrefix(name, "promhttp_") || name == "" {
			continue
		}
		m := Metric{Role: role, Name: name, Help: help, Type: kind, Labels: labels}
		if kind == dto.MetricType_UNTYPED || strings.HasSuffix(name, "_info") {
			m.Type = kindByName(name)
		}
		all = append(all, m)
	}
	return all
}
