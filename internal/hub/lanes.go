package hub

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/workflowservice/v1"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
)

// pollRetry spaces polls that fail, as when Temporal is away.
const pollRetry = 500 * time.Millisecond

// lane is one activity task queue that sessions of this hub serve. The hub's mutex guards it: its methods need it held.
//
// A poll is never cancelled: a cancelled poll can swallow a task. An unwanted poll is released through ShutdownWorker,
// or its task is parked and returned.
type lane struct {
	hub      *Hub
	name     string
	need     *api.Demand // what its tasks ask for; nil: it differs, or is nothing
	sessions map[*session]*seat
	ranking  ranking
	free     int // slots of its sessions
	polls    int // open polls
	parked   []*parked
	key      string // the worker instance key of the open polls; new after a release
	// emptySince is since when polls are open and brought no task; zero while none is open.
	emptySince time.Time
}

// serveLocked gives a session the lanes of its cluster's directive.
func (h *Hub) serveLocked(s *session) {
	directive := h.directives[s.cluster]
	s.limit(directive)
	h.slotsChangedLocked(s)
	wanted := map[string]bool{}
	if !s.gone {
		for _, name := range lanesOf(s, directive, h.ownLanes.isOpen(s.agent, &directive)) {
			wanted[name] = true
		}
	}
	kept := s.serving.lanes[:0]
	for _, l := range s.serving.lanes {
		if wanted[l.name] {
			delete(wanted, l.name)
			kept = append(kept, l)
			continue
		}
		l.free -= l.sessions[s].slots
		l.ranking.remove(l.sessions[s])
		delete(l.sessions, s)
		why := "no agent of this hub serves the lane any more"
		if !s.gone && holds(directive, l.name) {
			why = lanePaused
		}
		l.end(why)
	}
	s.serving.lanes, s.serving.fits = kept, slices.ContainsFunc(kept, func(l *lane) bool { return l.need != nil })
	for name := range wanted {
		l := h.lanes[name]
		if l == nil {
			l = &lane{hub: h, name: name, need: needOf(directive, name), sessions: map[*session]*seat{},
				ranking: ranking{}, key: uuid.NewString()}
			h.lanes[name] = l
		}
		l.sessions[s] = &seat{session: s, at: -1}
		s.serving.lanes, s.serving.fits = append(s.serving.lanes, l), s.serving.fits || l.need != nil
		l.count(s, s.score())
		l.fill()
	}
	h.returnUndeliveredIfLocked(s, lanePaused, func(a *attempt) bool { return holds(directive, a.Lane) })
	h.returnUndeliveredIfLocked(s, "the agent does not serve the lane any more", func(a *attempt) bool {
		return a.Lane != contract.AgentLane(s.cluster, s.agent) &&
			!slices.ContainsFunc(s.serving.lanes, func(l *lane) bool { return l.name == a.Lane })
	})
}

// end releases the polls of a lane if no session serves it any more.
func (l *lane) end(why string) {
	h := l.hub
	if len(l.sessions) > 0 {
		return
	}
	l.returnParked(why)
	if l.polls == 0 {
		delete(h.lanes, l.name)
		return
	}
	release := l.release()
	h.wg.Go(func() { h.releasePolls(h.run, release) })
}

// slotsChangedLocked brings the lanes' free slots up to date with a session.
func (h *Hub) slotsChangedLocked(s *session) {
	s.work.mark(time.Now())
	now := s.slots()
	changed := now != s.serving.free
	s.serving.free = now
	score := s.score()
	if !changed && !s.serving.fits {
		for _, l := range s.serving.lanes {
			l.ranking.update(l.sessions[s], score)
		}
		return
	}
	var more []*lane
	for _, l := range s.serving.lanes {
		if l.count(s, score) > 0 {
			more = append(more, l)
		}
	}
	for _, l := range more {
		l.placeParked()
		l.fill()
	}
}

// count brings the lane's free slots up to date with a session, and returns how many more it has.
func (l *lane) count(s *session, score float64) (more int) {
	slots, seat := s.serving.free, l.sessions[s]
	if l.need != nil && slots > 0 {
		slots = min(slots, l.hub.roomLocked(seat, l.need))
	}
	more = slots - seat.slots
	seat.slots, l.free = slots, l.free+more
	l.ranking.update(seat, score)
	return more
}

// fill opens as many polls on the lane as there are slots for.
func (l *lane) fill() {
	for l.needsPoll() {
		if l.polls == 0 {
			l.emptySince = time.Now()
		}
		l.polls++
		l.hub.wg.Go(func() { l.hub.pollLane(l) })
	}
}

func (l *lane) needsPoll() bool {
	return !l.hub.stopping && l.polls < min(l.hub.config.LanePollers, l.free-len(l.parked))
}

// pollLane polls until the lane has more polls than it needs.
func (h *Hub) pollLane(l *lane) {
	for {
		h.mu.Lock()
		key := l.key
		h.mu.Unlock()
		task, err := h.pollOnce(l.name, key)
		if err != nil && h.run.Err() == nil {
			h.log.Debug("A lane poll failed", zap.String("lane", l.name), zap.Error(err))
			backoff.Pause(h.run, pollRetry)
		}
		h.mu.Lock()
		l.polls--
		taken := task != nil && len(task.GetTaskToken()) > 0
		if taken || err != nil {
			l.emptySince = time.Now()
		}
		if taken {
			l.handleTask(task)
		}
		again := l.needsPoll()
		if again {
			l.polls++
		} else if l.polls == 0 {
			l.emptySince = time.Time{}
		}
		if l.polls == 0 && len(l.sessions) == 0 && len(l.parked) == 0 && h.lanes[l.name] == l {
			delete(h.lanes, l.name)
		}
		h.mu.Unlock()
		if !again {
			return
		}
	}
}

// errOutOfTouch means that the hub takes no work: its agents' leases run out, and so does its own.
var errOutOfTouch = errors.New("the hub is out of touch with Temporal")

func (h *Hub) pollOnce(lane, key string) (*workflowservice.PollActivityTaskQueueResponse, error) {
	if h.lease.OutOfTouch(time.Now()) {
		return nil, errOutOfTouch
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.run), store.PollTimeout)
	defer cancel()
	task, err := h.store.PollLane(ctx, lane, key)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, nil
	}
	return task, err
}

// laneRelease names the polls to give back.
type laneRelease struct{ lane, key string }

// release forgets the open polls' key; polls opened later have another.
func (l *lane) release() laneRelease {
	r := laneRelease{lane: l.name, key: l.key}
	l.key = uuid.NewString()
	return r
}

// releasePolls makes the server answer the polls empty, without losing a task. Where the server lacks support, the
// polls end within a minute, and their tasks go back to the lane.
func (h *Hub) releasePolls(ctx context.Context, r laneRelease) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := h.store.ReleasePolls(ctx, r.lane, r.key); err != nil {
		h.log.Debug("Polls were not released; they end by themselves", zap.String("lane", r.lane), zap.Error(err))
	}
}

// lanesOf returns the lanes that a cluster's directive lets a session serve: its own while that is open; the cluster's
// if it handles all types that wait there, or it leads; its shards'; none that is paused. A role counts only under a
// newer epoch than the session's, so a session does not inherit an earlier process's role. A cordoned session serves
// none.
func lanesOf(s *session, d contract.Directive, open bool) []string {
	if s.cordoned(d) {
		return nil
	}
	var lanes []string
	if open {
		lanes = append(lanes, task.AgentLane(s.agent))
	}
	if d.Mode == api.ActiveActive || s.leads(d) {
		if d.Mode != api.ActiveActive || cluster.TypesOf(&s.registration.AgentProfile).Covers(d.ServingTypes) {
			lanes = append(lanes, task.DefaultLane)
		}
		for _, set := range d.CapabilitySets {
			if api.HasAll(s.candidate.Capabilities, set) {
				lanes = append(lanes, task.CapabilityLane(set))
			}
		}
		for i := range d.Fits {
			if s.meetsNeeds(&d.Fits[i]) {
				lanes = append(lanes, d.Fits[i].Lane)
			}
		}
	}
	for _, shard := range s.owns(d) {
		lanes = append(lanes, task.ShardLane(shard))
	}
	queues := make([]string, 0, len(lanes))
	for _, lane := range lanes {
		if !d.Holds(lane) {
			queues = append(queues, contract.LaneQueue(s.cluster, lane))
		}
	}
	return queues
}

// lanePaused is why a task goes back to a lane that was paused.
const lanePaused = "the lane is paused"

// holds reports whether the lane of a task queue is paused.
func holds(d contract.Directive, queue string) bool {
	_, lane, ok := contract.LaneOfQueue(queue)
	return ok && d.Holds(lane)
}
