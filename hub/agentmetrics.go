package hub

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mainstay.dev/mainstay/fleet"
)

// heartbeatsKept is how long the counts of an agent stay after its session ended here, so that the heartbeats it missed
// last are seen. After that nothing of the agent is left in the metrics.
const heartbeatsKept = 10 * time.Minute

// heartbeats counts what came, and what did not come, from one agent. It outlives the agent's sessions for a while. The
// hub's mutex guards it.
type heartbeats struct {
	taken, missed int64
	endedAt       time.Time // zero while the agent has a session here
}

// agentMetrics tells of single agents. Its values are read from the sessions when they are asked for, so nothing stays
// of an agent that is gone, and each agent is told of by the hub that has its session only.
type agentMetrics struct {
	hub                                    *Hub
	score, age, completion, taken, missing *prometheus.Desc
}

func newAgentMetrics(h *Hub) *agentMetrics {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"agent_id"}, nil)
	}
	return &agentMetrics{
		hub:        h,
		score:      desc("stella_agent_health_score", "How well the agent does its work, 0 (failed) to 1 (healthy), by its last five minutes."),
		age:        desc("stella_agent_heartbeat_age_seconds", "Time since the agent's newest heartbeat. Heartbeats come every few seconds."),
		completion: desc("stella_agent_task_completion_rate", "Share of the attempts of the last five minutes that the agent finished, 0 to 1; 1 when it had none."),
		taken:      desc("stella_agent_heartbeat_success_total", "Heartbeats that came from the agent."),
		missing:    desc("stella_agent_heartbeat_failure_total", "Heartbeats that were due and did not come, or whose connection broke."),
	}
}

// Describe implements prometheus.Collector.
func (m *agentMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.score, m.age, m.completion, m.taken, m.missing} {
		descs <- d
	}
}

// agentReading is what is told of one session.
type agentReading struct {
	agent                  string
	score, age, completion float64
}

// Collect implements prometheus.Collector.
func (m *agentMetrics) Collect(metrics chan<- prometheus.Metric) {
	sessions, counts := m.hub.readAgents(time.Now())
	for _, s := range sessions {
		for _, v := range []struct {
			desc  *prometheus.Desc
			value float64
		}{{m.score, s.score}, {m.age, s.age}, {m.completion, s.completion}} {
			metrics <- prometheus.MustNewConstMetric(v.desc, prometheus.GaugeValue, v.value, s.agent)
		}
	}
	for agent, c := range counts {
		metrics <- prometheus.MustNewConstMetric(m.taken, prometheus.CounterValue, float64(c.taken), agent)
		metrics <- prometheus.MustNewConstMetric(m.missing, prometheus.CounterValue, float64(c.missed), agent)
	}
}

// readAgents copies what the metrics tell, so that the mutex is not held while they are written.
func (h *Hub) readAgents(now time.Time) ([]agentReading, map[string]heartbeats) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetHeartbeats(now)
	sessions := make([]agentReading, 0, len(h.sessions))
	for _, s := range h.sessions {
		health := h.assess(s, now)
		sessions = append(sessions, agentReading{
			agent: s.agent, score: health.Score, age: max(0, now.Sub(s.lastContact).Seconds()), completion: completionRate(&health)})
	}
	counts := make(map[string]heartbeats, len(h.heartbeats))
	for agent, c := range h.heartbeats {
		counts[agent] = *c
	}
	return sessions, counts
}

// completionRate is the factor of that name in an agent's health.
func completionRate(health *fleet.Health) float64 {
	for _, f := range health.Factors {
		if f.Name == fleet.FactorCompletion {
			return f.Score
		}
	}
	return 1
}

// heartbeatsOf are the counts of an agent that has a session now. The mutex is held.
func (h *Hub) heartbeatsOf(agent string) *heartbeats {
	c := h.heartbeats[agent]
	if c == nil {
		c = &heartbeats{}
		h.heartbeats[agent] = c
	}
	return c
}

// noteHeartbeat counts a poll, and the silence before it that was noticed meanwhile. The mutex is held.
func (h *Hub) noteHeartbeat(s *session) {
	h.heartbeatsOf(s.agent).taken++
	s.missed = 0
}

// noteSilence counts the heartbeats that a session has missed since its last one: one for each interval that it is
// silent, half an interval late, and one at once when its connection broke. The mutex is held.
func (h *Hub) noteSilence(s *session, now time.Time) {
	interval := h.config.Timing.Hold(h.lease(s))
	missed := int((now.Sub(s.lastContact) - interval/2) / interval)
	if !s.disconnectedAt.IsZero() {
		missed = max(missed, 1)
	}
	if missed > s.missed {
		h.heartbeatsOf(s.agent).missed += int64(missed - s.missed)
		s.missed = missed
	}
}

// forgetHeartbeats forgets the counts of agents that have had no session here for a while. The mutex is held.
func (h *Hub) forgetHeartbeats(now time.Time) {
	for agent, c := range h.heartbeats {
		switch {
		case h.sessions[agent] != nil:
			c.endedAt = time.Time{}
		case c.endedAt.IsZero():
			c.endedAt = now
		case now.Sub(c.endedAt) > heartbeatsKept:
			delete(h.heartbeats, agent)
		}
	}
}
