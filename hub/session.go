package hub

import (
	"encoding/json"
	"slices"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/hub/health"
	"mainstay.dev/mainstay/protocol"
)

// session is one registration of one agent process. The hub's mutex guards it: its methods need it held.
type session struct {
	agent, cluster, instance string
	epoch                    int64
	token                    string // id of the join token that it was opened with
	registration             protocol.Register
	candidate                fleet.Candidate // its static part; Running and the load are set when a task is placed
	openedAt                 time.Time

	lastContact    time.Time // the newest poll's arrival
	answeredAt     time.Time // the newest poll's answer: the agent's lease cannot end later than counted from here
	disconnectedAt time.Time // zero while its connection is open
	conn           *connection
	judged         fleet.Liveness
	stopping       bool
	gone           bool      // lost, replaced or said goodbye: a held poll must end
	fenced         bool      // gone because a newer process has the agent id
	held           bool      // lost, but the mass-loss brake holds on to it
	reprieve       time.Time // until when a session that the brake held may still come back
	evacuating     bool      // its work is being taken off it
	cordonedUntil  int64     // the directive's version from which on that alone says whether it is given work
	answerNow      bool      // answer the next poll at once, so that a re-attached agent's lease is renewed soon
	role           protocol.Command

	sequence int64 // of the newest poll
	wake     chan struct{}

	attempts map[attemptKey]*attempt
	outbox   []*attempt // assigned, not yet in a poll's answer
	commands []protocol.Command
	told     []protocol.Command // commands of the newest answer, until a poll shows that it was read
	toldIn   int64              // sequence of the poll that it answered

	// leftovers are attempts that the agent has although they no longer count.
	leftovers map[attemptKey]*leftover

	free      int // slots its lanes may count on
	busy      bool
	workedAt  time.Time // when it last had work, or opened
	lanes     []*lane
	health    *health.Record // what it did within the last minutes
	ownHealth *float64       // its own opinion, with why
	ownNote   string
	state     *fleet.StateSummary // what it keeps for its cluster; nil: nothing
	metrics   protocol.Metrics
	counters  protocol.Counters
	access    fleet.Providers
	suspected bool // as the listeners to events know
}

// attemptKey names an attempt within a hub.
type attemptKey struct {
	task   string
	number int
}

// attempt is one delivery that a session has or is about to get. The hub's mutex guards it, too.
type attempt struct {
	attemptKey
	session *session
	lane    string
	token   []byte // Temporal's
	sealed  string
	input   contract.RunTaskInput

	span        trace.Span             // of the delivery; nil: none
	trace       propagation.MapCarrier // that the agent is given
	takenAt     time.Time              // when the lane's poll brought it; zero for one that the agent brought
	inLane      time.Duration          // how long it had waited there, by Temporal's clock
	assignedAt  time.Time
	deliveredIn int64       // sequence of the poll whose answer carried it; 0: none yet
	deliveredOn *connection // that the answer went over
	accepted    bool        // the agent listed it as running
	startedAt   time.Time
	progress    *fleet.Progress
	checkpoint  json.RawMessage
	cancelling  bool
	beacon      time.Duration // the task's beacon timeout; 0: none
	beacons     int64         // the agent's count
	// when the hub last saw a sign of life of the handler, for agents that do not report its age
	aliveAt    time.Time
	evacuation *contract.EvacuateInput // set while a failover by hand takes it off the agent

	taskType, tenant string
	queuedAt         time.Time      // since when it waited in its lane; zero: not known
	published        fleet.Progress // the newest progress that the listeners to events know
	publishedAt      time.Time

	beatAt    time.Time // last heartbeat sent to Temporal
	beatNeeds bool      // progress or checkpoint changed since
	beatCheck bool      // the checkpoint changed since
}

func newSession(reg protocol.Register, epoch int64, now time.Time) *session {
	s := &session{
		agent: reg.AgentID, cluster: reg.Cluster, instance: reg.InstanceID, epoch: epoch, registration: reg,
		openedAt: now, workedAt: now, lastContact: now, answeredAt: now, judged: fleet.Alive,
		wake: make(chan struct{}, 1), attempts: map[attemptKey]*attempt{}, access: reg.Providers,
	}
	s.candidate = fleet.Candidate{AgentID: s.agent, Capabilities: sorted(reg.Capabilities),
		TaskTypes: sorted(reg.TaskTypes), MaxTasks: reg.MaxTasks,
		EndsProcessTrees: reg.EndsProcessTrees}
	return s
}

// transition is what the cluster is notified of when the session's agent changes.
func (s *session) transition(status fleet.AgentStatus, reason string, at time.Time) fleet.Transition {
	return fleet.Transition{
		AgentID:      s.agent,
		Instance:     s.instance,
		Epoch:        s.epoch,
		Registration: s.registration.Registration,
		Status:       status,
		Reason:       reason,
		At:           at.UTC(),
	}
}

// signal wakes the held poll, if any.
func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// command queues a command for the next answer.
func (s *session) command(c protocol.Command) {
	s.commands = append(s.commands, c)
	s.signal()
}

// repeat queues the newest answer's commands again: the agent may not have read it.
func (s *session) repeat() {
	s.commands = append(s.told, s.commands...)
	s.told = nil
}

// slots is how many more tasks the session may be given now.
func (s *session) slots() int {
	if s.gone || s.held || s.stopping || s.evacuating || !s.disconnectedAt.IsZero() {
		return 0
	}
	return max(0, s.candidate.MaxTasks-len(s.attempts)-s.occupied())
}

// limit lets the session run no more tasks at a time than the directive says, if it says so.
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

// stuck is how many handlers do not stop although they were told to: as the agent says, or as its lists show.
func (s *session) stuck(now time.Time) int {
	n := 0
	for _, l := range s.leftovers {
		if l.stuck || l.occupies && !l.since.IsZero() && now.Sub(l.since) > endingAllowance {
			n++
		}
	}
	return n
}

// countEnd counts the end of an attempt that an agent reported. One that was cancelled or taken off it says nothing
// about the agent.
func (s *session) countEnd(a *attempt, outcome fleet.AttemptOutcome, now time.Time) {
	if !a.cancelling && a.evacuation == nil {
		s.health.Ended(outcome, now)
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

// live is the candidate with its present load.
func (s *session) live() fleet.Candidate {
	c := s.candidate
	c.Running, c.CPUPercent, c.MemoryPercent = len(s.attempts), s.metrics.CPUPercent, s.metrics.MemoryPercent
	c.Providers = s.access
	return c
}

// report is what is known of an attempt, for a heartbeat or for its end.
func (a *attempt) report(hub string) contract.AttemptReport {
	r := contract.AttemptReport{Hub: hub, Progress: a.progress, Checkpoint: a.checkpoint, Begun: a.accepted}
	if a.session != nil {
		r.AgentID, r.Instance, r.Epoch = a.session.agent, a.session.instance, a.session.epoch
	}
	if !a.startedAt.IsZero() {
		started := a.startedAt.UTC()
		r.StartedAt = &started
	}
	return r
}

// mayHaveBegun reports whether the agent could have begun the attempt.
func (a *attempt) mayHaveBegun() bool { return a.accepted || a.deliveredIn > 0 }

func sorted(list []string) []string {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}
