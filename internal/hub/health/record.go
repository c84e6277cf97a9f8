package health

import (
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Record has what a session did, and its ratings. The monitor's mutex guards it.
type Record struct {
	monitor   *Monitor
	agent     string
	window    cluster.HealthWindow
	missed    int             // heartbeats since the newest one
	level     api.HealthLevel // the last rating; empty: not rated yet
	own       api.HealthLevel // the same by HealthFacts.Own
	score     float64
	notified  api.HealthLevel // the level that its cluster knows; empty: healthy
	turnedAt  time.Time       // since when the rating differs from notified, to the worse if worsening
	worsening bool
	failures  int // attempts that ended badly since the last one that completed
}

// Open begins the record of a session.
func (m *Monitor) Open(agent string) *Record { return &Record{monitor: m, agent: agent} }

// Heartbeat counts a poll that came gap after the previous one; interval is the expected gap.
func (r *Record) Heartbeat(gap, interval time.Duration, metrics protocol.Metrics, now time.Time) {
	r.monitor.mu.Lock()
	defer r.monitor.mu.Unlock()
	r.counts().came++
	r.missed = 0
	r.window.Heartbeat(gap, interval, now)
	r.window.Sampled(metrics.CPUPercent, metrics.MemoryPercent, now)
}

// Missed sets how many heartbeats the session has missed since its newest.
func (r *Record) Missed(n int) {
	r.monitor.mu.Lock()
	defer r.monitor.mu.Unlock()
	if n > r.missed {
		r.counts().missed += int64(n - r.missed)
		r.missed = n
	}
}

// Ended counts the end of an attempt.
func (r *Record) Ended(outcome api.AttemptOutcome, now time.Time) {
	r.monitor.mu.Lock()
	defer r.monitor.mu.Unlock()
	r.window.Ended(outcome, now)
	switch outcome {
	case api.AttemptCompleted:
		r.failures = 0
	case api.AttemptFailed, api.AttemptTimedOut, api.AttemptReturned:
		r.failures++
	}
}

// Rejoined records that the agent joined again: its cluster has forgotten its health.
func (r *Record) Rejoined() {
	r.monitor.mu.Lock()
	defer r.monitor.mu.Unlock()
	r.notified, r.turnedAt = "", time.Time{}
}

// Last returns the last rating: its level, empty if there is none yet, and its score.
func (r *Record) Last() (api.HealthLevel, float64) {
	r.monitor.mu.Lock()
	defer r.monitor.mu.Unlock()
	return r.level, r.score
}

// Close ends the record with its session.
func (r *Record) Close(now time.Time) {
	r.monitor.mu.Lock()
	defer r.monitor.mu.Unlock()
	if c := r.monitor.heartbeats[r.agent]; c != nil {
		c.endedAt = now
	}
	r.monitor.forget(now)
}

// assess rates the agent by all facts, and by the ones that are evidence against itself.
func (r *Record) assess(f cluster.HealthFacts, now time.Time) (all, own cluster.Health) {
	f = r.window.Facts(f, now)
	all, own = cluster.AssessHealth(f, r.level), cluster.AssessHealth(f.Own(), r.own)
	all.Busy = all.Level != api.HealthHealthy && own.Level == api.HealthHealthy
	r.level, r.score, r.own = all.Level, all.Score, own.Level
	return all, own
}

// counts returns the heartbeat counts of the record's agent, which has a session now.
func (r *Record) counts() *heartbeats {
	c := r.monitor.heartbeats[r.agent]
	if c == nil {
		c = &heartbeats{}
		r.monitor.heartbeats[r.agent] = c
	}
	c.endedAt = time.Time{}
	return c
}
