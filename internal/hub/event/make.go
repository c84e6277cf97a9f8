package event

import (
	"fmt"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// ProgressSpacing is the least time between two events of the progress of one attempt.
const ProgressSpacing = time.Second

// Running publishes that an agent has begun an attempt.
func (l *Log) Running(about api.EventData, previous string, queuedAt time.Time) {
	e := cluster.Event{Type: api.EventTaskRunning, Time: time.Now(), EventData: about}
	e.PreviousAgentID = previous
	if !queuedAt.IsZero() {
		e.QueuedAt = new(queuedAt.UTC())
	}
	l.Publish(e)
}

// Progress is the newest published progress of an attempt.
type Progress struct {
	newest api.Progress
	at     time.Time
}

// Progress publishes the progress of an attempt while a gateway reads the events.
func (l *Log) Progress(about api.EventData, now time.Time, p *api.Progress, known *Progress) {
	if p == nil || known.newest == *p || now.Sub(known.at) < ProgressSpacing || !l.Wanted(now) {
		return
	}
	*known = Progress{newest: *p, at: now}
	e := cluster.Event{Type: api.EventTaskProgress, Time: now, EventData: about}
	e.Progress = new(*p)
	l.Publish(e)
}

// Ended publishes the end of an attempt. If it brought no result, the event also has what follows, by the rule that the
// task itself applies. Gateways find reviews and ends of tasks in visibility, and of steps in their runs.
func (l *Log) Ended(about api.EventData, in *contract.RunTaskInput, report *contract.AttemptReport) {
	now := time.Now()
	e := cluster.Event{Type: api.EventTaskCompleted, Time: now, EventData: about}
	e.AttemptEnd = report.Outcome
	if report.Outcome == api.AttemptCompleted {
		l.Publish(e)
		return
	}
	if in == nil || in.TaskID == "" || report.Outcome == api.AttemptCancelled {
		return // the attempt was taken over from another process of the hub: the task's settings are unknown here
	}
	end := report.End()
	end.At = now
	next := task.Redeliver(&in.Spec, about.TaskID, in.Tally, end)
	e.Type, e.Reason = api.TaskEvent(next.Status), next.Why
	switch next.Status {
	case api.TaskQueued:
	case api.TaskRetryWait:
		e.NextAttemptAt = new(now.Add(next.Wait).UTC())
	default:
		e.Type = api.EventAttemptFailed
	}
	l.Publish(e)
}

// flapSpacing is the least time between two events that an agent is suspect; the next event has their number.
const flapSpacing = time.Minute

// Suspicion is what was published of an agent's liveness.
type Suspicion struct {
	suspect bool
	at      time.Time // when that it is suspect was last published
	flaps   int       // how often it became suspect since, without an event
}

// Liveness publishes that an agent became suspect, or is no longer. closed: its connection is.
func (l *Log) Liveness(about api.EventData, now time.Time, judged cluster.Liveness, closed bool, known *Suspicion) {
	e := cluster.Event{Time: now, EventData: about}
	switch {
	case judged == cluster.Alive && known.suspect:
		e.Type = api.EventAgentRecovered
	case judged != cluster.Alive && !known.suspect:
		if known.flaps++; now.Sub(known.at) < flapSpacing {
			return
		}
		e.Type = api.EventAgentSuspect
		if e.Reason = "silent for longer than the warning threshold"; closed {
			e.Reason = "its connection closed"
		}
		if known.flaps > 1 {
			e.Reason += fmt.Sprintf(", for the %dth time since %s", known.flaps, known.at.UTC().Format(time.TimeOnly))
		}
		known.at, known.flaps = now, 0
	default:
		return
	}
	known.suspect = judged != cluster.Alive
	l.Publish(e)
}
