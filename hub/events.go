package hub

import (
	"context"
	"slices"
	"time"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

const (
	// eventsKept is how many events a hub keeps in memory for listeners that come, or come back.
	eventsKept = 4096
	// eventGather is the least time of a reading that waited: what comes at once is one answer.
	eventGather = 20 * time.Millisecond
	// eventSettle is how much longer a reading waits while clusters are being told of changes, so that these come in order.
	eventSettle = 200 * time.Millisecond
	// eventInterest is how long after a reading the hub goes on to note what only listeners want: progress.
	eventInterest = time.Minute
	// eventProgress is the least time between two events of the progress of one attempt.
	eventProgress = time.Second
)

// eventLog is what the hub saw happen, in memory. The hub's mutex guards it.
type eventLog struct {
	log      fleet.EventLog
	hints    int64            // counts the hints
	changed  map[string]int64 // clusters that may have events of their own, by the newest hint at each
	wanted   time.Time        // until when somebody listens
	appended chan struct{}    // closed and replaced when something is new
}

func newEventLog() *eventLog {
	return &eventLog{changed: map[string]int64{}, appended: make(chan struct{})}
}

// tell notes an event. The mutex is held.
func (h *Hub) tell(kind fleet.EventType, at time.Time, data fleet.EventData) {
	data.Hub = h.id
	h.events.log.Add(fleet.Event{Type: kind, Time: at.UTC(), EventData: data}, eventsKept)
	h.events.wake()
}

// hint notes that a cluster has, or may have, new events of its own. The mutex is held.
func (h *Hub) hint(cluster string) {
	h.events.hints++
	h.events.changed[cluster] = h.events.hints
	h.events.wake()
}

func (l *eventLog) wake() {
	close(l.appended)
	l.appended = make(chan struct{})
}

// read is what there is for a reading.
func (l *eventLog) read(process string, in *contract.ReadEventsInput) contract.ReadEventsResult {
	r := contract.ReadEventsResult{Process: process, Seq: l.log.Seq, Hints: l.hints}
	switch {
	case in.Newest:
		return r
	case in.Process != "" && in.Process != process:
		r.Events, _ = l.log.After(0)
		r.Missing = -1
	case !in.From.IsZero():
		var missing bool
		if r.Events, missing = l.log.Since(in.From); missing {
			r.Missing = 1
		}
	default:
		r.Events, r.Missing = l.log.After(in.After)
	}
	for cluster, hint := range l.changed {
		if hint > in.Hints {
			r.Changed = append(r.Changed, cluster)
		}
	}
	slices.Sort(r.Changed)
	return r
}

// readEvents answers what the hub saw. It waits for something new if there is nothing.
func (h *Hub) readEvents(ctx context.Context, in contract.ReadEventsInput) (contract.ReadEventsResult, error) {
	wait := time.NewTimer(in.Wait.Std())
	defer wait.Stop()
	over := in.Wait <= 0
	var news time.Time // when there was something first
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		now := time.Now()
		h.events.wanted = now.Add(eventInterest)
		result := h.events.read(h.instance[:processName], &in)
		if over || in.Newest || h.run.Err() != nil || ctx.Err() != nil {
			return result, nil
		}
		appended, again := h.events.appended, make(<-chan time.Time)
		if len(result.Events) > 0 || len(result.Changed) > 0 || result.Missing != 0 {
			if news.IsZero() {
				news = now
			}
			passed := now.Sub(news)
			if passed >= eventGather && (passed >= eventSettle || !h.notices.busy()) {
				return result, nil
			}
			appended, again = nil, time.After(eventGather)
		}
		h.mu.Unlock()
		select {
		case <-appended:
		case <-again:
		case <-wait.C:
			over = true
		case <-ctx.Done():
		case <-h.run.Done():
		}
		h.mu.Lock()
	}
}

// listened reports whether somebody listens to events. The mutex is held.
func (h *Hub) listened(now time.Time) bool { return now.Before(h.events.wanted) }

// event begins the data of an event about an attempt.
func (a *attempt) event() fleet.EventData {
	data := fleet.EventData{TaskID: a.task, Attempt: a.number, TaskType: a.taskType, Tenant: a.tenant}
	if s := a.session; s != nil {
		data.Cluster, data.AgentID, data.Epoch = s.cluster, s.agent, s.epoch
	}
	return data
}

// tellRunning notes that an agent has begun an attempt. The mutex is held.
func (h *Hub) tellRunning(a *attempt) {
	data := a.event()
	data.PreviousAgentID = a.input.TransferredFrom
	if !a.queuedAt.IsZero() {
		at := a.queuedAt.UTC()
		data.QueuedAt = &at
	}
	h.tell(fleet.EventTaskRunning, time.Now(), data)
}

// tellProgress notes how far a task is, while somebody listens. The mutex is held.
func (h *Hub) tellProgress(a *attempt, now time.Time) {
	if a.progress == nil || !h.listened(now) || now.Sub(a.progressToldAt) < eventProgress || a.progressTold == *a.progress {
		return
	}
	a.progressTold, a.progressToldAt = *a.progress, now
	data := a.event()
	progress := *a.progress
	data.Progress = &progress
	h.tell(fleet.EventTaskProgress, now, data)
}

// tellEnded notes the end of an attempt that brought no result, and what comes after it by the rule that its task goes by.
// What a person must decide about, and what ends the task, visibility tells. The mutex is held.
func (h *Hub) tellEnded(a *attempt, report contract.AttemptReport) {
	if a.input.TaskID == "" || report.Outcome == fleet.AttemptCancelled {
		return // the attempt was taken over from another process of the hub: what its task goes by is not known here
	}
	now := time.Now()
	next := fleet.Redeliver(&a.input.Spec, a.task, a.input.Tally, report.End())
	data := a.event()
	data.AttemptEnd, data.Reason = report.Outcome, next.Why
	switch next.Status {
	case fleet.TaskQueued:
	case fleet.TaskRetryWait:
		at := now.Add(next.Wait).UTC()
		data.NextAttemptAt = &at
	default:
		return
	}
	h.tell(fleet.TaskEvent(next.Status), now, data)
}

// processName is how many characters of its id name the hub's process to listeners.
const processName = 8

// tellLiveness notes that an agent is suspect, or is no longer. The mutex is held.
func (h *Hub) tellLiveness(s *session, judged fleet.Liveness, now time.Time) {
	data := fleet.EventData{Cluster: s.cluster, AgentID: s.agent, Epoch: s.epoch}
	switch {
	case judged == fleet.Alive && s.suspected:
		s.suspected = false
		h.tell(fleet.EventAgentRecovered, now, data)
	case judged != fleet.Alive && !s.suspected:
		s.suspected = true
		if data.Reason = "silent for longer than the warning threshold"; !s.disconnectedAt.IsZero() {
			data.Reason = "its connection closed"
		}
		h.tell(fleet.EventAgentSuspect, now, data)
	}
}

// tellResult notes the end of an attempt that its agent reported. claims are what the hub knows for certain, since the
// attempt may be another hub's.
func (h *Hub) tellResult(claims attemptClaims, cluster string, report contract.AttemptReport) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := &attempt{attemptKey: attemptKey{claims.Task, claims.Attempt}, taskType: claims.Type, tenant: claims.Tenant}
	if s := h.sessions[claims.Agent]; s != nil && s.instance == claims.Instance {
		if own := s.attempts[a.attemptKey]; own != nil {
			a = own
		}
	}
	if a.session == nil {
		a.session = &session{agent: claims.Agent, cluster: cluster, instance: claims.Instance, epoch: claims.Epoch}
	} else if !a.accepted {
		h.tellRunning(a) // it ended before the agent's next poll
	}
	if report.Outcome == fleet.AttemptCompleted {
		data := a.event()
		data.AttemptEnd = report.Outcome
		h.tell(fleet.EventTaskCompleted, time.Now(), data)
		return
	}
	h.tellEnded(a, report)
}
