package activities

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mainstay.dev/mainstay/internal/healing"
	"mainstay.dev/sdk/api"
)

// NewHubsLost makes and registers the counter of lost hubs.
func NewHubsLost(r prometheus.Registerer) prometheus.Counter {
	lost := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mainstay_worker_hubs_lost_total",
		Help: "Hubs that were given up: their lease ran out and nothing took it again."})
	r.MustRegister(lost)
	return lost
}

// FailoverMetrics counts finished failovers. Dashboards and alerts rely on the names and labels (docs/OPERATIONS.md).
type FailoverMetrics struct {
	total       *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	transferred *prometheus.CounterVec
}

// NewFailoverMetrics registers the metrics.
func NewFailoverMetrics(r prometheus.Registerer) *FailoverMetrics {
	m := &FailoverMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stella_agent_failovers_total", Help: "Failovers, by how they ended."}, []string{"cluster_id",
			"status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "stella_agent_failover_duration_seconds",
			Help:    "From noticing the loss of an agent until others have its work and roles. Objective: 99 % within 10 s.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 30, 60, 300}}, []string{"cluster_id"}),
		transferred: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stella_agent_tasks_transferred_total",
			Help: "Tasks that a failover moved to another agent."}, []string{"cluster_id"}),
	}
	r.MustRegister(m.total, m.duration, m.transferred)
	return m
}

// CountFailover counts one.
func (m *FailoverMetrics) CountFailover(_ context.Context, record api.FailoverRecord) error {
	m.total.WithLabelValues(record.Cluster, string(record.Status)).Inc()
	m.transferred.WithLabelValues(record.Cluster).Add(float64(record.TasksTransferred))
	if ended := cmp.Or(record.ResumedAt, record.CompletedAt); ended != nil && record.Status == api.FailoverSucceeded {
		m.duration.WithLabelValues(record.Cluster).Observe(max(0, ended.Sub(record.NoticedAt).Seconds()))
	}
	return nil
}

// HealingMetrics counts healing actions. Dashboards and alerts rely on the names and labels (docs/OPERATIONS.md).
type HealingMetrics struct {
	actions  *prometheus.CounterVec
	duration prometheus.Histogram
}

// NewHealingMetrics registers the metrics.
func NewHealingMetrics(r prometheus.Registerer) *HealingMetrics {
	m := &HealingMetrics{
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stella_agent_healing_actions_total",
			Help: "Healing actions that have ended, by how."}, []string{"action_type", "status"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "stella_agent_healing_cycle_duration_seconds", Help: "How long a healing cycle looked at the fleet.",
			Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}}),
	}
	r.MustRegister(m.actions, m.duration)
	for _, kind := range healing.HealingTypes() { // else the first failure would be no increase
		m.actions.WithLabelValues(string(kind), string(api.HealingFailed))
	}
	return m
}

// CountHealing counts one action.
func (m *HealingMetrics) CountHealing(_ context.Context, record api.HealingRecord) error {
	m.actions.WithLabelValues(string(record.Type), string(record.Status)).Inc()
	return nil
}

func (m *HealingMetrics) cycle(took time.Duration) {
	if m != nil {
		m.duration.Observe(took.Seconds())
	}
}
