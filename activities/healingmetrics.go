package activities

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mainstay.dev/mainstay/fleet"
)

// HealingMetrics counts healing actions. Dashboards and alerts rely on the names and labels (docs/METRICS.md).
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
	return m
}

// CountHealing counts one action.
func (m *HealingMetrics) CountHealing(_ context.Context, record fleet.HealingRecord) error {
	m.actions.WithLabelValues(string(record.Type), string(record.Status)).Inc()
	return nil
}

func (m *HealingMetrics) cycle(took time.Duration) {
	if m != nil {
		m.duration.Observe(took.Seconds())
	}
}
