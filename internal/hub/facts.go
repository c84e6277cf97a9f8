package hub

import (
	"bytes"
	"slices"
	"strings"
	"time"

	workerpb "go.temporal.io/api/worker/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/health"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// facts is the hub as its listeners see it. Each method takes the hub's lock. The hub may hold its lock when it calls a
// listener, so a listener must not hold its own when it calls one of these.
type facts struct{ hub *Hub }

// HolderOf returns the agent that has an attempt; empty when none has.
func (f facts) HolderOf(task string, number int) string {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	for _, s := range f.hub.sessions {
		if s.attempts[attemptKey{task, number}] != nil {
			return s.agent
		}
	}
	return ""
}

// Command sends an agent a command with the answer of its poll, if it has a session.
func (f facts) Command(agent string, c protocol.Command) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if s := f.hub.sessions[agent]; s != nil {
		s.command(c)
	}
}

// CommandKeeper sends an agent a command. It reports false when the agent has no session or keeps no state.
func (f facts) CommandKeeper(agent string, c protocol.Command) bool {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	s := f.hub.sessions[agent]
	if s == nil || s.state == nil {
		return false
	}
	s.command(c)
	return true
}

// States returns the agents of a cluster with the state summaries of their heartbeats, sorted.
func (f facts) States(cluster string) (states []contract.AgentState) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	for _, s := range f.hub.sessions {
		if s.cluster == cluster {
			states = append(states, contract.AgentState{AgentID: s.agent, State: s.state})
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
		if s.state != nil && f.hub.directives[s.cluster].Mode != api.ActiveActive {
			digests[s.cluster] = append(digests[s.cluster], s.state.Digest)
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
			Alive:    !s.held && s.judged == cluster.Alive,
			Facts: cluster.HealthFacts{
				SelfReported:  s.ownHealth,
				SelfNote:      s.ownNote,
				Slots:         s.registration.MaxTasks,
				Stuck:         s.stuck(now),
				Silence:       now.Sub(s.lastContact),
				Interval:      f.hub.holdTimeLocked(s),
				CPUPercent:    s.metrics.CPUPercent,
				MemoryPercent: s.metrics.MemoryPercent,
				DiskPercent:   s.metrics.DiskPercent,
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
			entries = append(entries, s.workerEntry(now))
		}
	}
	return append(entries, f.hub.rivalsLocked(picks, now)...)
}

// brake returns the state of a cluster's brake for the cluster; nil: not engaged.
func (f facts) brake(clusterName string) *cluster.BrakeHold {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	b := f.hub.brakes[clusterName]
	if b == nil || b.EngagedAt.IsZero() || b.askCluster {
		return nil
	}
	return &cluster.BrakeHold{Hub: f.hub.id, Process: f.hub.instance, Since: b.EngagedAt.UTC(), Lost: b.Count()}
}

// cancel cancels the attempt with this Temporal token.
func (f facts) cancel(token []byte) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	for _, s := range f.hub.sessions {
		for _, a := range s.attempts {
			if bytes.Equal(a.token, token) {
				f.hub.cancelAttemptLocked(a)
				return
			}
		}
	}
	for _, a := range f.hub.awaited {
		if bytes.Equal(a.token, token) {
			f.hub.giveUpAwaitedLocked(a, "it was cancelled while its agent was out of touch")
		}
	}
}

// rejoin makes all agents register again, because the clusters may have given them up together with this hub. Running
// work goes on: the registrations list it.
func (f facts) rejoin() {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log.Warn("The hub was out of touch with Temporal; its agents register again", zap.Int("agents", len(h.sessions)))
	for _, b := range h.brakes {
		b.Release() // the reclaimer gives up who does not come back
	}
	for agent, s := range h.sessions {
		h.returnUndeliveredLocked(s, "the hub was out of touch with Temporal")
		delete(h.sessions, agent)
		h.leaveHostLocked(s)
		s.gone = true
		s.eachAllocation(s.reallocated)
		clear(s.attempts)
		h.closeListeningLocked(s, time.Now())
		h.slotsChangedLocked(s)
		h.serveLocked(s)
		s.wake.Send()
	}
	h.reclaimer.ask(everyCluster)
}

// missingLocked reports whether a cluster counts a member on this hub that has no session here.
func (h *Hub) missingLocked(clusterName string, m *cluster.Member) bool {
	s := h.sessionInLocked(clusterName, m.AgentID)
	return m.Hub == h.id && m.Serving() && (s == nil || s.epoch < m.Epoch)
}

// giveUpMissing reports to a cluster each member that it counts on this hub and that has no session here, as far as the
// look is to give it up. It returns those of the attempts that the hub had before which are to be ended: those of such
// members, and, unless a member may still bring them back, those that no agent has.
func (f facts) giveUpMissing(l *look, view *contract.ClusterView, held store.Held) (lost store.Held) {
	h, now, name := f.hub, time.Now(), view.Config.Name
	h.mu.Lock()
	defer h.mu.Unlock()
	brake, present := cluster.Brake{Policy: view.Config.Brake}, 0
	for i := range view.Members {
		if m := &view.Members[i]; h.missingLocked(name, m) {
			brake.Lost(cluster.AgentLoss{AgentID: m.AgentID, At: now})
		} else if m.Serving() {
			present++
		}
	}
	attempts, braked, waits := held.Attempts(), (brake.Settle(present, now) || view.Braked()) && !l.last, false
	gone := map[string]bool{}
	for i := range view.Members {
		m := &view.Members[i]
		s := h.sessionInLocked(name, m.AgentID)
		away := m.Hub == h.id && m.Connected() && (s == nil || s.epoch < m.Epoch)
		// One that registers now may be counted already and open its session next.
		if away && (braked || l.promisesOnly && !m.Reconnects || h.registering[m.AgentID] > 0) {
			waits = true
			continue
		}
		gone[m.AgentID] = m.Hub == h.id || !m.Serving() // else it is with another hub, with its work
		if away && m.Serving() {
			h.notices.Notify(name, cluster.Transition{
				AgentID:      m.AgentID,
				Instance:     m.Instance,
				Epoch:        m.Epoch,
				Registration: m.Registration,
				Status:       api.AgentOffline,
				At:           now.UTC(),
				Reason:       l.reason,
				Attempts:     attempts[m.AgentID],
				Evidence:     api.EvidenceHubLost,
				NoticedAfter: api.Duration(now.Sub(l.began).Round(time.Millisecond)),
			})
		}
	}
	l.waits = waits
	here := h.attemptsLocked()
	return slices.DeleteFunc(held, func(t store.Task) bool {
		a := t.Running()
		left := gone[a.AgentID] || view.Member(a.AgentID) == nil && !waits
		return here[attemptKey{t.ID, a.Number}] || !left
	})
}
