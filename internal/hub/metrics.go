package hub

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/api/workflowservice/v1"
)

// metrics are the hub's Prometheus metrics.
type metrics struct {
	registered  prometheus.Counter
	ended       *prometheus.CounterVec // kind: left, lost, fenced, revoked
	reattached  prometheus.Counter
	results     *prometheus.CounterVec // outcome
	givenUp     *prometheus.CounterVec // evidence
	mistakes    prometheus.Counter
	refuted     prometheus.Counter
	stale       prometheus.Counter
	lost        prometheus.Counter
	returned    prometheus.Counter
	notReceived prometheus.Counter
	parked      prometheus.Counter
	overdue     prometheus.Counter
	latency     *prometheus.HistogramVec // cluster
	failover    *prometheus.HistogramVec // cluster
}

func newMetrics(r prometheus.Registerer, h *Hub) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		r.MustRegister(c)
		return c
	}
	gauge := func(name, help string, value func() int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			h.mu.Lock()
			defer h.mu.Unlock()
			return float64(value())
		}))
	}
	gauge("mainstay_hub_sessions", "Agents with a session on this hub.", func() int { return len(h.sessions) })
	sum := func(of func(*session) int) func() int {
		return func() (n int) {
			for _, s := range h.sessions {
				n += of(s)
			}
			return n
		}
	}
	gauge("mainstay_hub_attempts", "Attempts that agents of this hub have.",
		sum(func(s *session) int { return len(s.work.attempts) }))
	gauge("mainstay_hub_lane_polls", "Open polls on lanes.", func() int {
		n := 0
		for _, l := range h.lanes {
			n += l.polls
		}
		return n
	})
	gauge("mainstay_hub_stuck_handlers",
		"Handlers that their agents do not stop although their attempts are over; each keeps a slot.",
		sum(func(s *session) int { return s.work.occupied() }))
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "mainstay_hub_lease_age_seconds",
		Help: "Time since Temporal last took the heartbeat of the hub's own lease. Above 5 it renews no leases of agents; above 10 it may have been given up."},
		func() float64 { return h.lease.Age(time.Now()).Seconds() }))
	r.MustRegister(h.health)
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets},
			[]string{"cluster_id"})
		r.MustRegister(v)
		return v
	}
	return &metrics{
		latency: histogram("stella_agent_queue_latency_seconds",
			"How long attempts waited in their lanes and in the hub until an agent had accepted them.",
			.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600),
		failover: histogram("mainstay_hub_failover_seconds",
			"From noticing that an agent is lost until another has accepted an attempt that it had. Objective: 99 % within 5 s.",
			.05, .1, .25, .5, 1, 2, 3, 5, 7.5, 10, 15, 30, 60, 300),
		registered: counter("mainstay_hub_sessions_opened_total", "Sessions opened."),
		ended: vector("mainstay_hub_sessions_ended_total",
			"Sessions ended, by kind: left, lost, fenced or revoked.", "kind"),
		givenUp: vector("mainstay_hub_agents_given_up_total",
			"Agents given up, by evidence: connection_closed, unreachable, silence or proof.", "evidence"),
		mistakes: counter("mainstay_hub_agents_given_up_wrongly_total",
			"Agents that came back as the same process after they had been given up."),
		refuted: counter("mainstay_hub_false_proofs_total",
			"Agents that live although a proof of death said that they had ended."),
		reattached: counter("mainstay_hub_attempts_reattached_total",
			"Running attempts taken over from agents that re-attached."),
		results: vector("mainstay_hub_results_total", "Results that Temporal accepted, by outcome.", "outcome"),
		stale:   counter("mainstay_hub_stale_results_total", "Results of superseded attempts that were rejected."),
		lost:    counter("mainstay_hub_attempts_lost_total", "Attempts lost with their agents."),
		returned: counter("mainstay_hub_attempts_returned_total",
			"Attempts given back to their lanes before they began."),
		notReceived: counter("mainstay_hub_attempts_not_received_total",
			"Attempts among those given back that reached an agent that lives, which could not read them or did not list them."),
		overdue: counter("mainstay_hub_beacons_missed_total",
			"Attempts that the hub ended because their handlers gave no sign of life and their agents did not end them."),
		parked: counter("mainstay_hub_tasks_parked_total", "Tasks that had to wait in the hub for a free slot."),
	}
}

// waitedInLane is how long the task waited in Temporal.
func waitedInLane(task *workflowservice.PollActivityTaskQueueResponse) time.Duration {
	if task.GetScheduledTime() == nil || task.GetStartedTime() == nil {
		return 0
	}
	return max(0, task.GetStartedTime().AsTime().Sub(task.GetScheduledTime().AsTime()))
}

// countAcceptedLocked counts how long the attempt waited for its acceptance, and how long the failover took if the
// previous attempt's agent was lost.
func (h *Hub) countAcceptedLocked(a *attempt, now time.Time) {
	if a.takenAt.IsZero() {
		return
	}
	a.traceAccepted(now)
	cluster := a.session.cluster
	h.metrics.latency.WithLabelValues(cluster).Observe((a.inLane + now.Sub(a.takenAt)).Seconds())
	if lost := a.input.LostAt; lost != nil {
		h.metrics.failover.WithLabelValues(cluster).Observe(max(0, now.Sub(*lost)).Seconds())
	}
}
