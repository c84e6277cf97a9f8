package health

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Kept is how long an agent's counts stay after its session ended here, so that a scrape gets the heartbeats that it
// missed last.
const Kept = 10 * time.Minute

// heartbeats counts an agent's heartbeats, received and missed. It outlives the agent's sessions for a while.
type heartbeats struct {
	came, missed int64
	endedAt      time.Time // zero while the agent has a session here
}

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"agent_id"}, nil)
}

var (
	scoreDesc = desc("stella_agent_health_score",
		"How well the agent does its work, 0 (failed) to 1 (healthy), by its last five minutes.")
	ageDesc = desc("stella_agent_heartbeat_age_seconds",
		"Time since the agent's newest heartbeat. Heartbeats come every few seconds.")
	completionDesc = desc("stella_agent_task_completion_rate",
		"Share of the attempts of the last five minutes that the agent finished, 0 to 1; 1 when it had none.")
	cameDesc   = desc("stella_agent_heartbeat_success_total", "Heartbeats that came from the agent.")
	missedDesc = desc("stella_agent_heartbeat_failure_total",
		"Heartbeats that were due and did not come, or whose connection broke.")
)

// Describe implements prometheus.Collector.
func (m *Monitor) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{scoreDesc, ageDesc, completionDesc, cameDesc, missedDesc} {
		descs <- d
	}
}

// Collect implements prometheus.Collector. It reads the values from the sessions, so only the hub that has an agent's
// session reports it, and an agent that is gone leaves nothing behind.
func (m *Monitor) Collect(metrics chan<- prometheus.Metric) {
	now := time.Now()
	for _, metric := range m.collect(m.facts.Agents("", now), now) {
		metrics <- metric
	}
}

func (m *Monitor) collect(agents []Agent, now time.Time) (metrics []prometheus.Metric) {
	add := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, agent string) {
		metrics = append(metrics, prometheus.MustNewConstMetric(d, kind, value, agent))
	}
	for _, a := range agents {
		health := m.rate(&a, now)
		add(scoreDesc, prometheus.GaugeValue, health.Score, a.ID)
		add(ageDesc, prometheus.GaugeValue, max(0, a.Facts.Silence.Seconds()), a.ID)
		add(completionDesc, prometheus.GaugeValue, health.Finished, a.ID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(now)
	for agent, c := range m.heartbeats {
		add(cameDesc, prometheus.CounterValue, float64(c.came), agent)
		add(missedDesc, prometheus.CounterValue, float64(c.missed), agent)
	}
	return metrics
}

// forget drops the counts of agents that have had no session here for a while.
func (m *Monitor) forget(now time.Time) {
	for agent, c := range m.heartbeats {
		if !c.endedAt.IsZero() && now.Sub(c.endedAt) > Kept {
			delete(m.heartbeats, agent)
		}
	}
}
