package hub

import (
	"runtime"
	"slices"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/diagnosis"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// parked is a task that came from a lane when no slot was free.
type parked struct {
	attempt *attempt
	timer   *time.Timer
}

// handleTask places a task from the lane on the best session with a free slot, or parks it if a slot may become
// free.
func (l *lane) handleTask(task *workflowservice.PollActivityTaskQueueResponse) {
	h := l.hub
	a := &attempt{attemptClaims: attemptClaims{Temporal: task.GetTaskToken(), Lane: l.name}, takenAt: time.Now(),
		inLane: waitedInLane(task)}
	if err := contract.Payloads.FromPayloads(task.GetInput(), &a.input); err != nil {
		h.log.Error("A task on a lane cannot be read", zap.String("lane", l.name), zap.Error(err))
		h.fail(a, contract.AttemptReport{Hub: h.id, Outcome: api.AttemptFailed, Final: true,
			Reason: "the hub cannot read the task: it was made by another version"})
		return
	}
	a.Task, a.Attempt, a.JobInstance = a.input.TaskID, a.input.Attempt, sealedInstance(a.input.Instance)
	a.traceDelivery(h, task.GetHeader())
	a.Type, a.Tenant = a.input.Spec.Type, a.input.Spec.Tenant
	if t := task.GetScheduledTime(); t != nil {
		a.queuedAt = t.AsTime()
	}
	if cluster, _, _ := contract.LaneOfQueue(l.name); !api.TakesTenant(h.directives[cluster].Tenants, a.Tenant) {
		// It was there before the cluster was for others only, or begins again.
		h.fail(a, contract.AttemptReport{Hub: h.id, Outcome: api.AttemptFailed, Final: true,
			Reason: "cluster " + cluster + " takes no work of tenant " + a.Tenant})
		return
	}
	if h.stopping {
		h.giveBackLocked(a, "the hub is stopping")
		return
	}
	if l.place(a) {
		return
	}
	if len(l.sessions) == 0 {
		h.giveBackLocked(a, "no agent of this hub serves the lane any more")
		return
	}
	if !l.mayServe(&a.input, time.Now()) || l.need == nil && !a.input.Spec.Place.IsZero() {
		// No slot of an agent that could run it will become free; or, in a lane of other tasks too, it asks for what an
		// agent has not free, and must not keep a slot from them.
		l.giveBackUnplaced(a, time.Now())
		return
	}
	h.metrics.parked.Inc()
	p := &parked{attempt: a}
	p.timer = time.AfterFunc(h.config.Park, func() { h.endParking(l, p) })
	l.parked = append(l.parked, p)
}

// place gives an attempt to the best session of the lane. It reports false when none has a free slot.
func (l *lane) place(a *attempt) bool {
	return l.placeAmong(a, rankTop) || l.placeAmong(a, len(l.sessions))
}

// placeAmong is place among the least loaded sessions of each kind, at most top of each.
func (l *lane) placeAmong(a *attempt, top int) bool {
	shortlist := l.shortlist(&a.input, top)
	sessions := make([]*session, 0, len(shortlist))
	candidates := make([]task.Candidate, 0, len(shortlist))
	for _, s := range shortlist {
		if s.serving.free > 0 && s.takes(&a.input) {
			sessions = append(sessions, s)
			c := s.live()
			if demand := &a.input.Spec.Place; !demand.IsZero() {
				c.Stock = l.hub.stockLocked(s, demand)
			}
			candidates = append(candidates, c)
		}
	}
	chosen := task.Place(&a.input.Spec, candidates, task.Hint{Prefer: a.input.PreferAgent,
		Avoid: a.input.TransferredFrom}, time.Now())
	if chosen < 0 {
		return false
	}
	if stock := candidates[chosen].Stock; stock != nil {
		a.Allocation, _ = stock.Allocate(&a.input.Spec.Place)
	}
	l.hub.assignLocked(sessions[chosen], a)
	return true
}

// assignLocked puts an attempt in a session's outbox and wakes its poll.
func (h *Hub) assignLocked(s *session, a *attempt) {
	a.session, a.assignedAt = s, time.Now()
	spec := &a.input.Spec
	a.Agent, a.Instance, a.Epoch = s.agent, s.instance, s.epoch
	a.Elements, a.ResultLimit, a.Beacon = elementNumbers(&a.input), a.input.ResultLimit, spec.BeaconTimeout
	a.StopGrace, a.Grace = api.Duration(spec.Grace()), api.Duration(spec.AwaitedFor(a.JobInstance))
	a.Fenced, a.Person = spec.Safety() == api.Fenced, spec.Safety().NeedsPerson()
	a.sealed = h.seal.attempt(a.attemptClaims)
	s.work.attempts[a.key()] = a
	s.resources.reallocated(a.Allocation)
	h.fresh = append(h.fresh, a)
	s.work.outbox = append(s.work.outbox, a)
	h.slotsChangedLocked(s)
	if len(s.work.attempts) == 1 {
		h.registry.Changed(s.agent) // so that scaling sees that it is not idle any more
	}
	if a.Allocation != nil && len(a.Allocation.Ports) > 0 {
		h.hostChangedLocked(s.resources.host)
	}
	s.wake.Send()
}

// elementNumbers are the numbers of the delivery's elements; none: it is a task.
func elementNumbers(in *contract.RunTaskInput) []int {
	if in.Element != nil {
		return []int{*in.Element}
	}
	var list []int
	for i := range in.Elements {
		list = append(list, in.Elements[i].Number)
	}
	return list
}

// takes reports whether the agent knows this kind of delivery and is not excluded from it.
func (s *session) takes(in *contract.RunTaskInput) bool {
	return (len(in.Elements) == 0 || s.registration.Bundles) && !slices.Contains(in.Exclude, s.agent)
}

// assignment is the message that delivers the attempt to an agent.
func (a *attempt) assignment() protocol.Assignment {
	spec := &a.input.Spec
	var shard *int
	_, lane, _ := contract.LaneOfQueue(a.Lane)
	if n, sharded := task.ShardOfLane(lane); sharded {
		shard = &n
	}
	return protocol.Assignment{
		TaskID:      a.Task,
		Attempt:     a.Attempt,
		Type:        spec.Type,
		Cluster:     spec.Cluster,
		Payload:     spec.Payload,
		Token:       a.sealed,
		RetrySafety: spec.Safety(),
		Timeout:     api.Duration(spec.AttemptTimeout()),
		Beacon:      spec.BeaconTimeout,
		Checkpoint:  a.input.Checkpoint, CheckpointDigest: a.input.CheckpointDigest,
		Labels:          spec.Labels,
		Tenant:          spec.Tenant,
		Shard:           shard,
		TransferredFrom: a.input.TransferredFrom,
		Elements:        a.input.Elements,
		ResultLimit:     a.input.ResultLimit,
		Element:         a.input.Element,
		Instance:        a.input.Instance,
		StopGrace:       spec.StopGrace,
		IdempotencyKey:  a.input.IdempotencyKey,
		DeadlineAt:      a.input.DeadlineAt,
		Allocation:      a.Allocation,
		TraceParent:     a.trace["traceparent"], TraceState: a.trace["tracestate"],
	}
}

// placeParked places parked tasks while slots are free.
func (l *lane) placeParked() {
	for len(l.parked) > 0 && l.free > 0 {
		placed := false
		for i, p := range l.parked {
			if l.place(p.attempt) {
				p.timer.Stop()
				l.parked = slices.Delete(l.parked, i, i+1)
				placed = true
				break
			}
		}
		if !placed {
			return
		}
	}
}

// endParking returns a task that waited long enough.
func (h *Hub) endParking(l *lane, p *parked) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(l.parked, p)
	if i < 0 {
		return
	}
	l.parked = slices.Delete(l.parked, i, i+1)
	l.giveBackUnplaced(p.attempt, time.Now())
	l.fill()
}

// returnParked returns all parked tasks of a lane.
func (l *lane) returnParked(why string) {
	for _, p := range l.parked {
		p.timer.Stop()
		l.hub.giveBackLocked(p.attempt, why)
	}
	l.parked = nil
}

// Each delivery that comes back costs Temporal several writes. So the more tasks of a tenant no agent takes, the more
// rarely each of them is offered.
const (
	// offersPerCore is how many of them a hub has offered again in a second, for each of its cores, and offersAtOnce
	// how many come back as if they were alone.
	offersPerCore, offersAtOnce = 10, 100
	// crowded is the least wait for this reason. It grows with how often a task came back.
	crowded = time.Second
	// limitLooked is the longest wait for the end of a provider's limit: another agent may have come meanwhile.
	limitLooked = 30 * time.Second
)

func offersPerSecond() int { return offersPerCore * runtime.GOMAXPROCS(0) }

// giveBackUnplaced returns a task that no agent of the lane took, with the reason and the earliest time to try
// again.
func (l *lane) giveBackUnplaced(a *attempt, now time.Time) {
	h := l.hub
	h.metrics.returned.Inc()
	a.traceFailed("no agent could take it")
	report := a.report(h.id)
	report.Outcome = api.AttemptReturned
	why, after := l.whyUnplaced(&a.input, now)
	report.Reason, report.Unhandled = diagnosis.WhyUnplaced(&why, &a.input.Spec), why.Unhandled()
	report.RetryAfter = after
	if turn := h.offers.Spend(a.Tenant, 1, now); turn > crowded {
		report.RetryAfter = max(report.RetryAfter, api.Duration(turn))
	}
	h.fail(a, report)
}

// mayServe reports whether an agent of the lane can run a task, busy or not.
func (l *lane) mayServe(in *contract.RunTaskInput, now time.Time) bool {
	for s := range l.sessions {
		c := s.live()
		if s.takes(in) && c.Eligible(&in.Spec, now) {
			return true
		}
	}
	return false
}

// whyUnplaced is why no agent of the lane took a task, and in which time it is worth another try: when the first
// rate limit that blocks an agent ends.
func (l *lane) whyUnplaced(in *contract.RunTaskInput, now time.Time) (diagnosis.Unplaced, api.Duration) {
	spec := &in.Spec
	if l.mayServe(in, now) {
		if lacking := l.shortage(in, true); lacking != "" {
			return diagnosis.Unplaced{Code: diagnosis.TooLittle, Lacking: lacking}, 0
		}
		return diagnosis.Unplaced{Code: diagnosis.AllBusy}, 0
	}
	if first := l.limitedUntil(in, now); !first.IsZero() {
		return diagnosis.Unplaced{Code: diagnosis.RateLimited, Until: first},
			api.Duration(min(first.Sub(now), limitLooked))
	}
	lacking := l.shortage(in, false)
	switch {
	case len(in.Elements) > 0:
		return diagnosis.Unplaced{Code: diagnosis.NotBundled}, 0
	case len(in.Exclude) > 0:
		return diagnosis.Unplaced{Code: diagnosis.OnlyExcluded, Exclude: in.Exclude}, 0
	case spec.NeedsTreeEnd():
		return diagnosis.Unplaced{Code: diagnosis.LeaveProcesses}, 0
	case lacking != "":
		return diagnosis.Unplaced{Code: diagnosis.NeverFits, Lacking: lacking}, 0
	}
	return diagnosis.Unplaced{Code: diagnosis.NotHandled}, 0
}

// limitedUntil is when the first rate limit ends that keeps an agent of the lane from a task; zero: none does.
func (l *lane) limitedUntil(in *contract.RunTaskInput, now time.Time) (first time.Time) {
	for s := range l.sessions {
		c := s.live()
		if until, limited := c.Providers.LimitedUntil(in.Spec.Provider, now); limited && s.takes(in) &&
			c.Fits(&in.Spec) && (first.IsZero() || until.Before(first)) {
			first = until
		}
	}
	return first
}
