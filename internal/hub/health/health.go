// Package health rates the agents of a hub by what they did within the last minutes.
package health

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/sdk/api"
)

// A cluster is notified of a new level once it has lasted, of a worse one soon, of a better one later, so that brief
// changes write nothing.
const (
	WorseAfter  = 2 * time.Second
	BetterAfter = 15 * time.Second
)

// maxWhy bounds the reason that a cluster keeps of each agent, in bytes.
const maxWhy = 256

// Agent has the hub's facts about an agent with a session.
type Agent struct {
	ID, Cluster, Instance string
	Epoch                 int64
	Record                *Record
	// Facts are the health facts that the record lacks.
	Facts cluster.HealthFacts
	// Alive: the agent polls in time. The failure detector reports the others to the cluster.
	Alive bool
}

// Facts are what the monitor needs of the hub.
type Facts interface {
	// Agents returns the agents of a cluster that have a session now; no cluster: of all.
	Agents(cluster string, now time.Time) []Agent
	// NotifyHealth notifies the agent's cluster, unless its session has ended.
	NotifyHealth(a *Agent, health cluster.MemberHealth)
}

// Monitor rates agents. Its methods may be called from any goroutine.
type Monitor struct {
	facts    Facts
	log      *zap.Logger
	interval time.Duration

	mu         sync.Mutex             // guards the records, too
	heartbeats map[string]*heartbeats // by agent
}

// New makes a monitor that rates all agents at each interval.
func New(facts Facts, log *zap.Logger, interval time.Duration) *Monitor {
	return &Monitor{facts: facts, log: log, interval: interval, heartbeats: map[string]*heartbeats{}}
}

// Run rates the agents until the context ends, and notifies their clusters of lasting changes.
func (m *Monitor) Run(ctx context.Context) {
	part.Every(ctx, m.interval, func(now time.Time) {
		agents := m.facts.Agents("", now)
		for i := range agents {
			if a := &agents[i]; a.Alive {
				if changed := m.lasting(a, now); changed != nil {
					m.facts.NotifyHealth(a, *changed)
				}
			}
		}
	})
}

// lasting returns an agent's health if its level has changed for long enough to notify its cluster, else nil.
func (m *Monitor) lasting(a *Agent, now time.Time) *cluster.MemberHealth {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := a.Record
	_, health := r.assess(a.Facts, now) // being busy is no illness, and changes often; failures may be the handlers'
	worse := health.Level.WorseThan(r.notified)
	switch {
	case !worse && !r.notified.WorseThan(health.Level):
		r.turnedAt = time.Time{}
		return nil
	case r.turnedAt.IsZero() || r.worsening != worse:
		r.turnedAt, r.worsening = now, worse
		return nil
	case worse && now.Sub(r.turnedAt) < WorseAfter, !worse && now.Sub(r.turnedAt) < BetterAfter:
		return nil
	}
	m.log.Info("An agent's health changed", zap.String("agent", a.ID), zap.String("from", string(r.notified)),
		zap.String("to", string(health.Level)), zap.Float64("score", health.Score), zap.String("why", health.Why))
	r.notified, r.turnedAt = health.Level, time.Time{}
	return &cluster.MemberHealth{Level: health.Level, Score: health.Score, Why: api.Shorten(health.Why, maxWhy),
		Since: now.UTC()}
}

// Read rates the agents of a cluster that have a session here.
func (m *Monitor) Read(_ context.Context, in contract.ReadHealthInput) (contract.ReadHealthResult, error) {
	now := time.Now()
	result := contract.ReadHealthResult{Agents: map[string]cluster.Health{}}
	for _, a := range m.facts.Agents(in.Cluster, now) {
		if in.AgentID == "" || a.ID == in.AgentID {
			rated := m.rate(&a, now)
			rated.MeasuredAt(now.Add(-a.Facts.Silence), now)
			result.Agents[a.ID] = rated
		}
	}
	return result, nil
}

// rate locks for one agent only: heartbeats of a large fleet do not wait for the ratings of all.
func (m *Monitor) rate(a *Agent, now time.Time) cluster.Health {
	m.mu.Lock()
	defer m.mu.Unlock()
	rated, _ := a.Record.assess(a.Facts, now)
	rated.ConsecutiveFailures = a.Record.failures
	return rated
}
