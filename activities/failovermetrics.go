package activities

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"mainstay.dev/mainstay/fleet"
)

// FailoverMetrics counts finished failovers. Dashboards and alerts rely on the names and labels (docs/METRICS.md).
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
func (m *FailoverMetrics) CountFailover(_ context.Context, record fleet.FailoverRecord) error {
	m.total.WithLabelValues(record.Cluster, string(record.Status)).Inc()
	m.transferred.WithLabelValues(record.Cluster).Add(float64(record.TasksTransferred))
	if record.CompletedAt != nil && record.Status == fleet.FailoverSucceeded {
		m.duration.WithLabelValues(record.Cluster).Observe(max(0, record.CompletedAt.Sub(record.NoticedAt).Seconds()))
	}
	return nil
}
