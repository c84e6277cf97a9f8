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

// session is one registration of one agent process. The hub's mutex guards it: its methods need it held.
type session struct {
	agent, cluster, instance string
	epoch                    int64
	token                    string // id of the join token that opened it
	from                     string // address that it registered from; empty if unknown
	registration             protocol.Register
	candidate                task.Candidate // its static part; placement sets Running and the load
	kind                     string         // see kindOf
	openedAt                 time.Time

	timing    cluster.Timing // of the hub as it was when the agent came; the agent knows these times
	mistakes  int            // how often the process came back after it had been given up
	roundTrip time.Duration  // from an answer to the next poll, smoothed; 0: not measured yet
	repliedAt time.Time      // of the answer to the poll toldIn

	lastContact    time.Time     // the newest poll's arrival
	answeredAt     time.Time     // the newest answer; the agent's lease counts from here at the latest
	lease          time.Duration // the newest that the agent has certainly read; it counts with that, or with offered
	offered        time.Duration // what an answer carried and no poll has named yet; 0: none
	namesLease     bool          // its polls name its lease, so it can be told another
	disconnectedAt time.Time     // zero while its connection is open
	unreachable    bool          // the kernel closed it: its host does not answer
	conn           *connection
	judged         cluster.Liveness
	judgedAt       time.Time // when that changed
	stopping       bool
	stoppingAt     time.Time
	vacated        bool      // its cluster knows that it stops, and has given its roles to others
	gone           bool      // lost, replaced or said goodbye: a held poll must end
	fenced         bool      // gone because a newer process has the agent id
	held           bool      // lost, but held by the mass-loss brake
	missed         bool      // its cluster knows that the hub misses it
	missedAt       time.Time // when that changed
	unjudged       bool      // lost or suspect, and its cluster has not judged that yet
	reprieve       time.Time // until when a session that the brake held may still come back
	evacuating     bool      // a failover by hand is taking its work off it
	resigned       int64     // it has lost its roles of this epoch and of older ones to a failover by hand
	leavingUntil   time.Time // a drain wants its instances of services elsewhere
	relieved       time.Time // until then it gets nothing new: a rebalance moved tasks off it
	cordonedUntil  int64     // directives of this version or newer decide alone whether it is cordoned
	answerNow      bool      // answer the next poll at once, to renew a re-attached agent's lease soon
	role           protocol.Command

	sequence int64       // of the newest poll
	wake     part.Signal // ends the held poll, if any

	attempts map[attemptKey]*attempt
	outbox   []*attempt // assigned, not yet in a poll's answer
	commands []protocol.Command
	told     []protocol.Command              // commands of the newest answer, until a poll confirms that answer
	toldIn   int64                           // sequence of the poll that it answered
	repeated map[protocol.CommandType]string // the requests for state that were queued again

	// leftovers are attempts that the agent has although they no longer count.
	leftovers    map[attemptKey]*leftover
	complainedAt time.Time // when the log was last told that a handler does not stop

	free         int  // slots its lanes may count on
	fits         bool // it serves lanes whose tasks ask for resources
	busy         bool
	worked       bool      // it has ever reported an attempt of its own
	workedAt     time.Time // when it last had work, or was opened
	lanes        []*lane
	host         *host
	stock        *task.Stock     // what it has left, as far as other agents leave it the ports; nil: to be counted anew
	stockVersion int             // of what it has left
	meets        map[string]bool // whether it could ever run the tasks of lanes that ask for resources, as far as known
	health       *health.Record  // what it did within the last minutes
	ownHealth    *float64        // the agent's own report
	ownNote      string
	state        *api.StateSummary // summary of the state that it shares; nil: none
	metrics      protocol.Metrics
	counters     protocol.Counters
	access       api.Providers
	suspicion    event.Suspicion
}

func newSession(reg protocol.Register, epoch int64, now time.Time) *session {
	s := &session{
		agent: reg.AgentID, cluster: reg.Cluster, instance: reg.InstanceID, epoch: epoch, registration: reg,
		openedAt: now, workedAt: now, lastContact: now, answeredAt: now, judged: cluster.Alive,
		wake: part.NewSignal(), attempts: map[attemptKey]*attempt{}, access: reg.Providers,
		repeated: map[protocol.CommandType]string{},
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

// measure takes the time from an answer until the agent's next poll into its round trip. A poll that the agent sent
// before it had read the answer tells nothing.
func (s *session) measure(poll *protocol.Poll, now time.Time) {
	if s.repliedAt.IsZero() || poll.Sequence != s.toldIn+1 || poll.Answered != nil && *poll.Answered < s.toldIn {
		return
	}
	taken := now.Sub(s.repliedAt)
	if s.roundTrip == 0 {
		s.roundTrip = taken
		return
	}
	const smoothing = 4
	s.roundTrip += (taken - s.roundTrip) / smoothing
}

// grace is how long the agent has to come back after its connection closed.
func (s *session) grace() time.Duration {
	return s.timing.Grace(s.registration.Reconnects, s.roundTrip, s.mistakes)
}

// brieflyAway reports whether its connection closed so lately that an agent which opens one for each poll may be back.
func (s *session) brieflyAway(now time.Time) bool {
	return now.Sub(s.disconnectedAt) < s.grace()/briefly
}

// slots is how many more tasks the session may be given now.
func (s *session) slots() int {
	if s.gone || s.held || s.stopping || s.evacuating || time.Now().Before(s.relieved) || !s.disconnectedAt.IsZero() {
		return 0
	}
	return max(0, s.candidate.MaxTasks-len(s.attempts)-s.occupied())
}

// limit sets the directive's limit of tasks at a time, if it has one for the session.
func (s *session) limit(d contract.Directive) {
	s.candidate.MaxTasks = s.registration.MaxTasks
	if slots, reduced := d.Slots[s.agent]; reduced {
		s.candidate.MaxTasks = min(slots, s.registration.MaxTasks)
	}
}

// markWork records when the session last had work.
func (s *session) markWork(now time.Time) {
	had := s.busy
	s.busy = len(s.attempts)+s.occupied() > 0
	if had || s.busy {
		s.workedAt = now
	}
}

// stuck counts the handlers that do not stop although the agent was commanded to: as it reports, or as its lists show.
func (s *session) stuck(now time.Time) int {
	n := 0
	for _, l := range s.leftovers {
		if l.stuck || l.occupies && !l.since.IsZero() && now.Sub(l.since) > endingAllowance {
			n++
		}
	}
	return n
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
	if !s.stopping {
		s.countEnd(a, api.AttemptReturned, now)
	}
}

// countMissed counts the heartbeats that the session has missed since its last one: one for each interval that it is
// silent, half an interval late, and one at once when its connection broke.
func (s *session) countMissed(interval time.Duration, now time.Time) {
	missed := int((now.Sub(s.lastContact) - interval/2) / interval)
	if !s.disconnectedAt.IsZero() {
		missed = max(missed, 1)
	}
	if missed > 0 {
		s.health.Missed(missed)
	}
}

// live returns the candidate with its present load.
func (s *session) live() task.Candidate {
	c := s.candidate
	c.Running, c.CPUPercent, c.MemoryPercent = len(s.attempts), s.metrics.CPUPercent, s.metrics.MemoryPercent
	c.Providers = s.access
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
	return listed || s.cordonedUntil > d.Version
}

// sessionInLocked is the session of an agent of a cluster. Another cluster may have the agent's id since, and epochs
// are each cluster's own.
func (h *Hub) sessionInLocked(cluster, agent string) *session {
	if s := h.sessions[agent]; s != nil && s.cluster == cluster {
		return s
	}
	return nil
}
