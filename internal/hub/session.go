package hub

import (
	"slices"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/event"
	"mainstay.dev/mainstay/internal/hub/health"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// session is one registration of one agent process. The hub's mutex guards it: its methods and its parts' need it held.
type session struct {
	agent, cluster, instance string
	epoch                    int64
	token                    string // id of the join token that opened it
	from                     string // address that it registered from; empty if unknown
	registration             protocol.Register
	candidate                task.Candidate // its static part; placement sets Running and the load
	kind                     string         // see kindOf
	openedAt                 time.Time
	timing                   cluster.Timing // of the hub as it was when the agent came; the agent knows these times
	mistakes                 int            // how often the process came back after it had been given up

	gone   bool        // lost, replaced or said goodbye: a held poll must end
	fenced bool        // gone because a newer process has the agent id
	wake   part.Signal // ends the held poll, if any

	link      link
	lease     agentLease
	loss      loss
	leaving   leaving
	orders    orders
	work      work
	serving   serving
	resources resources
	reports   reports
	health    *health.Record // what it did within the last minutes
}

// loss is how far the agent counts as lost.
type loss struct {
	judged    cluster.Liveness
	judgedAt  time.Time // when that changed
	published event.Suspicion
	held      bool      // lost, but held by the mass-loss brake
	missed    bool      // its cluster knows that the hub misses it
	missedAt  time.Time // when that changed
	unjudged  bool      // lost or suspect, and its cluster has not judged that yet
	reprieve  time.Time // until when a session that the brake held may still come back
}

// leaving is what keeps new work or roles from the agent.
type leaving struct {
	stopping      bool
	stoppingAt    time.Time
	vacated       bool      // its cluster knows that it stops, and has given its roles to others
	evacuating    bool      // a failover by hand is taking its work off it
	resigned      int64     // it has lost its roles of this epoch and of older ones to a failover by hand
	drainedUntil  time.Time // a drain wants its instances of services elsewhere
	relievedUntil time.Time // until then it gets nothing new: a rebalance moved tasks off it
	cordonedUntil int64     // directives of this version or newer decide alone whether it is cordoned
}

// serving is which lanes the agent serves, and with how many slots.
type serving struct {
	lanes []*lane
	free  int  // slots that the lanes may count on
	fits  bool // there are lanes whose tasks ask for resources
}

// reports are what the agent reports about itself.
type reports struct {
	health    *float64
	note      string            // about its health
	state     *api.StateSummary // of the state that it shares; nil: none
	metrics   protocol.Metrics
	counters  protocol.Counters
	providers api.Providers
}

func newSession(reg protocol.Register, epoch int64, now time.Time) *session {
	s := &session{
		agent: reg.AgentID, cluster: reg.Cluster, instance: reg.InstanceID, epoch: epoch, registration: reg,
		openedAt: now, wake: part.NewSignal(),
		link:    link{lastContact: now},
		lease:   agentLease{answeredAt: now},
		loss:    loss{judged: cluster.Alive},
		orders:  orders{repeated: map[protocol.CommandType]string{}},
		work:    work{attempts: map[attemptKey]*attempt{}, lastAt: now},
		reports: reports{providers: reg.Providers},
	}
	s.registration.Running = nil // it may be large, and is read only once
	s.candidate = task.Candidate{AgentID: s.agent, Capabilities: api.SortedSet(reg.Capabilities),
		TaskTypes: api.SortedSet(reg.TaskTypes), MaxTasks: reg.MaxTasks, EndsProcessTrees: reg.EndsProcessTrees,
		Inventory: reg.Resources}
	s.kind = kindOf(&s.candidate, reg.Bundles)
	return s
}

// transition is the change of its agent that a session reports to the cluster.
func (s *session) transition(status api.AgentStatus, reason string, at time.Time) cluster.Transition {
	return cluster.Transition{
		AgentID:      s.agent,
		Instance:     s.instance,
		Epoch:        s.epoch,
		Registration: s.registration.Registration,
		Status:       status,
		Reason:       reason,
		At:           at.UTC(),
	}
}

// grace is how long the agent has to come back after its connection closed.
func (s *session) grace() time.Duration {
	return s.timing.Grace(s.registration.Reconnects, s.link.roundTrip, s.mistakes)
}

// brieflyAway reports whether its connection closed so lately that an agent which opens one for each poll may be back.
func (s *session) brieflyAway(now time.Time) bool {
	return now.Sub(s.link.closedAt) < s.grace()/briefly
}

// slots is how many more tasks the session may be given now.
func (s *session) slots() int {
	if s.gone || s.loss.held || s.link.closed() || s.leaving.stopping || s.leaving.evacuating ||
		time.Now().Before(s.leaving.relievedUntil) {
		return 0
	}
	return max(0, s.candidate.MaxTasks-len(s.work.attempts)-s.work.occupied())
}

// limit sets the directive's limit of tasks at a time, if it has one for the session.
func (s *session) limit(d contract.Directive) {
	s.candidate.MaxTasks = s.registration.MaxTasks
	if slots, reduced := d.Slots[s.agent]; reduced {
		s.candidate.MaxTasks = min(slots, s.registration.MaxTasks)
	}
}

// countEnd counts the end of an attempt that an agent reported. Attempts that were cancelled or taken off the agent do
// not count.
func (s *session) countEnd(a *attempt, outcome api.AttemptOutcome, now time.Time) {
	if !a.cancelling && a.evacuation == nil {
		s.health.Ended(outcome, now)
	}
}

// countUndone counts an attempt that the agent was given and did not do: it handed it back, never listed it, or has it
// no more. One that is stopping may.
func (s *session) countUndone(a *attempt, now time.Time) {
	if !s.leaving.stopping {
		s.countEnd(a, api.AttemptReturned, now)
	}
}

// countMissed counts the heartbeats that the session has missed since its last one: one for each interval that it is
// silent, half an interval late, and one at once when its connection broke.
func (s *session) countMissed(interval time.Duration, now time.Time) {
	missed := int((now.Sub(s.link.lastContact) - interval/2) / interval)
	if s.link.closed() {
		missed = max(missed, 1)
	}
	if missed > 0 {
		s.health.Missed(missed)
	}
}

// live returns the candidate with its present load.
func (s *session) live() task.Candidate {
	c := s.candidate
	c.Running, c.Providers = len(s.work.attempts), s.reports.providers
	c.CPUPercent, c.MemoryPercent = s.reports.metrics.CPUPercent, s.reports.metrics.MemoryPercent
	if s.health != nil {
		c.Health, _ = s.health.Last()
	}
	return c
}

// sessionLocked is the session of one process of an agent; nil: it is not here, or not any more.
func (h *Hub) sessionLocked(agent, instance string, epoch int64) *session {
	if s := h.sessions[agent]; s != nil && s.instance == instance && s.epoch == epoch {
		return s
	}
	return nil
}

// cordoned reports whether the session gets no work: the directive says so, or a drain stopped it and the directive
// does not include that yet.
func (s *session) cordoned(d contract.Directive) bool {
	_, listed := slices.BinarySearch(d.Cordoned, s.agent)
	return listed || s.leaving.cordonedUntil > d.Version
}

// sessionInLocked is the session of an agent of a cluster. Another cluster may have the agent's id since, and epochs
// are each cluster's own.
func (h *Hub) sessionInLocked(cluster, agent string) *session {
	if s := h.sessions[agent]; s != nil && s.cluster == cluster {
		return s
	}
	return nil
}
