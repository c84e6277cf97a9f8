package hub

import (
	"slices"
	"strings"
	"time"

	workerpb "go.temporal.io/api/worker/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/health"
	"mainstay.dev/mainstay/internal/hub/registry"
	"mainstay.dev/sdk/api"
)

// facts is the hub as its listeners see it. Each method takes the hub's lock. The hub may hold its lock when it calls a
// listener, so a listener must not hold its own when it calls one of these.
type facts struct{ hub *Hub }

// HolderOf returns the agent that has an attempt; empty when none has.
func (f facts) HolderOf(task string, number int) string {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	for _, s := range f.hub.sessions {
		if s.work.attempts[attemptKey{task, number}] != nil {
			return s.agent
		}
	}
	return ""
}

// States returns the agents of a cluster with the state summaries of their heartbeats, sorted.
func (f facts) States(cluster string) (states []contract.AgentState) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	for _, s := range f.hub.sessions {
		if s.cluster == cluster {
			states = append(states, contract.AgentState{AgentID: s.agent, State: s.reports.state})
		}
	}
	slices.SortFunc(states, func(a, b contract.AgentState) int { return strings.Compare(a.AgentID, b.AgentID) })
	return states
}

// Digests returns the digests of the agents' states by cluster, without clusters whose agents all have the same.
func (f facts) Digests() map[string][]string {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	digests := map[string][]string{}
	for _, s := range f.hub.sessions {
		if s.reports.state != nil && f.hub.directives[s.cluster].Mode != api.ActiveActive {
			digests[s.cluster] = append(digests[s.cluster], s.reports.state.Digest)
		}
	}
	return digests
}

// Agents returns the agents of a cluster that have a session, with the facts that their health depends on. No cluster:
// of all.
func (f facts) Agents(clusterName string, now time.Time) (agents []health.Agent) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	for _, s := range f.hub.sessions {
		if clusterName != "" && s.cluster != clusterName {
			continue
		}
		agents = append(agents, health.Agent{
			ID:       s.agent,
			Cluster:  s.cluster,
			Instance: s.instance,
			Epoch:    s.epoch,
			Record:   s.health,
			Alive:    !s.loss.held && s.loss.judged == cluster.Alive,
			Facts: cluster.HealthFacts{
				SelfReported:  s.reports.health,
				SelfNote:      s.reports.note,
				Slots:         s.registration.MaxTasks,
				Stuck:         s.work.stuck(now),
				Silence:       now.Sub(s.link.lastContact),
				Interval:      f.hub.holdTimeLocked(s),
				CPUPercent:    s.reports.metrics.CPUPercent,
				MemoryPercent: s.reports.metrics.MemoryPercent,
				DiskPercent:   s.reports.metrics.DiskPercent,
			},
		})
	}
	return agents
}

// NotifyHealth notifies the agent's cluster, unless the session has ended.
func (f facts) NotifyHealth(a *health.Agent, is cluster.MemberHealth) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if s := f.hub.sessions[a.ID]; s != nil && s.health == a.Record {
		t := s.transition("", "", is.Since)
		t.Health = &is
		f.hub.notices.Notify(s.cluster, t)
	}
}

// entries returns sessions as entries of the worker registry.
func (f facts) entries(picks func(agent string) bool) (entries []*workerpb.WorkerHeartbeat) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	now := time.Now()
	for _, s := range f.hub.sessions {
		if picks(s.agent) {
			s.work.mark(now)
			entries = append(entries, s.published().Entry(now))
		}
	}
	return append(entries, f.hub.rivalsLocked(picks, now)...)
}

// published is the session as the registry shows it.
func (s *session) published() *registry.Agent {
	status, since := s.status()
	level, score := s.health.Last()
	return &registry.Agent{
		Register:    &s.registration,
		Stopping:    s.leaving.stopping,
		Status:      status,
		Since:       since,
		OpenedAt:    s.openedAt,
		LastContact: s.link.lastContact,
		WorkedAt:    s.work.lastAt,
		Running:     len(s.work.attempts),
		Metrics:     &s.reports.metrics,
		Counters:    s.reports.counters,
		Health:      level,
		HealthScore: score,
	}
}

// status is the session's live status, and since when it has it.
func (s *session) status() (api.AgentStatus, time.Time) {
	switch {
	case s.loss.judged == cluster.Suspect:
		return api.AgentSuspect, s.loss.judgedAt
	case s.loss.judged == cluster.Warning:
		return api.AgentWarning, s.loss.judgedAt
	case s.leaving.stopping:
		return api.AgentStopping, s.leaving.stoppingAt
	}
	return api.AgentOnline, s.openedAt
}

// brake returns the state of a cluster's brake for the cluster; nil: not engaged.
func (f facts) brake(clusterName string) *cluster.BrakeHold {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	b := f.hub.brakes[clusterName]
	if b == nil || b.EngagedAt.IsZero() || b.askCluster {
		return nil
	}
	return &cluster.BrakeHold{Hub: f.hub.id, Process: f.hub.store.Process, Since: b.EngagedAt.UTC(), Lost: b.Count()}
}

// EpochOf returns the newest epoch that the hub knows for an agent's cluster; 0 without a session.
func (f facts) EpochOf(agent string) int64 {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	s := f.hub.sessions[agent]
	if s == nil {
		return 0
	}
	d := f.hub.directives[s.cluster] // members of a sharded cluster write under its version
	return max(s.epoch, d.LeaderEpoch, d.Version)
}
