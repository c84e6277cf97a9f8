package hub

import (
	"fmt"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// progressSpacing is the least time between two events of the progress of one attempt.
const progressSpacing = time.Second

// event begins an event about an attempt.
func (a *attempt) event(kind api.EventType, at time.Time) cluster.Event {
	data := api.EventData{TaskID: a.Task, Attempt: a.Attempt, TaskType: a.Type, Tenant: a.Tenant}
	if s := a.session; s != nil {
		data.Cluster, data.AgentID, data.Epoch = s.cluster, s.agent, s.epoch
	}
	return cluster.Event{Type: kind, Time: at, EventData: data}
}

// publishRunningLocked publishes that an agent has begun an attempt.
func (h *Hub) publishRunningLocked(a *attempt) {
	e := a.event(api.EventTaskRunning, time.Now())
	e.PreviousAgentID = a.input.TransferredFrom
	if !a.queuedAt.IsZero() {
		e.QueuedAt = new(a.queuedAt.UTC())
	}
	h.events.Publish(e)
}

// publishProgressLocked publishes the progress of an attempt while a gateway reads the events.
func (h *Hub) publishProgressLocked(a *attempt, now time.Time) {
	if a.progress == nil || a.published == *a.progress || now.Sub(a.publishedAt) < progressSpacing ||
		!h.events.Wanted(now) {
		return
	}
	a.published, a.publishedAt = *a.progress, now
	e := a.event(api.EventTaskProgress, now)
	e.Progress = new(*a.progress)
	h.events.Publish(e)
}

// publishEndedLocked publishes the end of an attempt. If it brought no result, the event also has what follows, by the
// rule that the task itself applies. Gateways find reviews and ends of tasks in visibility, and of steps in their runs.
func (h *Hub) publishEndedLocked(a *attempt, report *contract.AttemptReport) {
	now := time.Now()
	if report.Outcome == api.AttemptCompleted {
		e := a.event(api.EventTaskCompleted, now)
		e.AttemptEnd = report.Outcome
		h.events.Publish(e)
		return
	}
	if a.input.TaskID == "" || report.Outcome == api.AttemptCancelled {
		return // the attempt was taken over from another process of the hub: the task's settings are unknown here
	}
	end := report.End()
	end.At = now
	next := task.Redeliver(&a.input.Spec, a.Task, a.input.Tally, end)
	e := a.event(api.TaskEvent(next.Status), now)
	e.AttemptEnd, e.Reason = report.Outcome, next.Why
	switch next.Status {
	case api.TaskQueued:
	case api.TaskRetryWait:
		e.NextAttemptAt = new(now.Add(next.Wait).UTC())
	default:
		e.Type = api.EventAttemptFailed
	}
	h.events.Publish(e)
}

// flapSpacing is the least time between two events that an agent is suspect; the next tells how often it was.
const flapSpacing = time.Minute

// publishLivenessLocked publishes that an agent became suspect, or is no longer.
func (h *Hub) publishLivenessLocked(s *session, judged cluster.Liveness, now time.Time) {
	e := cluster.Event{Time: now, EventData: api.EventData{Cluster: s.cluster, AgentID: s.agent, Epoch: s.epoch}}
	switch {
	case judged == cluster.Alive && s.suspected:
		e.Type = api.EventAgentRecovered
	case judged != cluster.Alive && !s.suspected:
		if s.flaps++; now.Sub(s.suspectedAt) < flapSpacing {
			return
		}
		e.Type = api.EventAgentSuspect
		if e.Reason = "silent for longer than the warning threshold"; !s.disconnectedAt.IsZero() {
			e.Reason = "its connection closed"
		}
		if s.flaps > 1 {
			e.Reason += fmt.Sprintf(", for the %dth time since %s", s.flaps, s.suspectedAt.UTC().Format(time.TimeOnly))
		}
		s.suspectedAt, s.flaps = now, 0
	default:
		return
	}
	s.suspected = judged != cluster.Alive
	h.events.Publish(e)
}
