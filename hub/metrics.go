package hub

import "github.com/prometheus/client_golang/prometheus"

// metrics are the hub's Prometheus metrics.
type metrics struct {
	registered prometheus.Counter
	ended      *prometheus.CounterVec // kind: left, lost, fenced
	reattached prometheus.Counter
	results    *prometheus.CounterVec // outcome
	stale      prometheus.Counter
	lost       prometheus.Counter
	returned   prometheus.Counter
	parked     prometheus.Counter
	overdue    prometheus.Counter
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
	gauge("mainstay_hub_attempts", "Attempts that agents of this hub have.", func() int {
		n := 0
		for _, s := range h.sessions {
			n += len(s.attempts)
		}
		return n
	})
	gauge("mainstay_hub_lane_polls", "Open polls on lanes.", func() int {
		n := 0
		for _, l := range h.lanes {
			n += l.polls
		}
		return n
	})
	gauge("mainstay_hub_stuck_handlers", "Handlers that their agents do not stop although their attempts are over; each keeps a slot.", func() int {
		n := 0
		for _, s := range h.sessions {
			n += s.occupied()
		}
		return n
	})
	return &metrics{
		registered: counter("mainstay_hub_sessions_opened_total", "Sessions opened."),
		ended:      vector("mainstay_hub_sessions_ended_total", "Sessions ended, by kind: left, lost or fenced.", "kind"),
		reattached: counter("mainstay_hub_attempts_reattached_total", "Running attempts taken over from agents that re-attached."),
		results:    vector("mainstay_hub_results_total", "Results that Temporal accepted, by outcome.", "outcome"),
		stale:      counter("mainstay_hub_stale_results_total", "Results of superseded attempts that were rejected."),
		lost:       counter("mainstay_hub_attempts_lost_total", "Attempts lost with their agents."),
		returned:   counter("mainstay_hub_attempts_returned_total", "Attempts given back to their lanes before they began."),
		overdue:    counter("mainstay_hub_beacons_missed_total", "Attempts that the hub ended because their handlers gave no sign of life and their agents did not end them."),
		parked:     counter("mainstay_hub_tasks_parked_total", "Tasks that had to wait in the hub for a free slot."),
	}
}
