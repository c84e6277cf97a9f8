package cluster

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// eventLog keeps the cluster's newest events. It adds nothing to history: the events follow from the state, which a
// replay restores.
type eventLog struct {
	quiet
	run       *run
	kept      cluster.EventLog
	recorded  *cluster.ClusterSnapshot // the state up to which events are recorded
	announced contract.Inbox[contract.Announcement]
}

// open takes over the previous run's events.
func (l *eventLog) open(ctx workflow.Context, in contract.ClusterInput) {
	if in.Events != nil {
		l.kept = *in.Events
	}
	l.announced = contract.AnnounceSignal.Inbox(ctx)
	l.recorded = l.run.state.Snapshot()
	if in.State == nil {
		l.publish(l.run.created, api.EventClusterCreated, api.EventData{})
	}
}

func (l *eventLog) handle(ctx workflow.Context) error {
	return contract.EventsQuery.Handle(ctx, func(q contract.EventsSince) contract.ClusterEvents {
		answer := contract.ClusterEvents{CreatedAt: l.run.created, Seq: l.kept.Seq}
		if q.From.IsZero() {
			answer.Events, answer.Missing = l.kept.After(q.After)
			return answer
		}
		events, missing := l.kept.Since(q.From)
		if answer.Events = events; missing {
			answer.Missing = 1
		}
		return answer
	})
}

func (l *eventLog) signalled() bool { return l.announced.Len() > 0 }

// settle publishes what other workflows announce about the cluster.
func (l *eventLog) settle(ctx workflow.Context) {
	l.announced.Take(func(a contract.Announcement) {
		for _, e := range a.Events[:min(len(a.Events), cluster.MaxEventsKept)] {
			if e.Time.IsZero() {
				e.Time = workflow.Now(ctx)
			}
			l.publish(e.Time, e.Type, e.EventData)
		}
	})
}

// record publishes the events that led to the present state. It is called after every step.
func (l *eventLog) record(ctx workflow.Context) {
	for _, e := range l.run.state.Changes(l.recorded, workflow.Now(ctx)) {
		l.kept.Add(e, cluster.MaxEventsKept)
	}
}

// publish publishes an event that the state does not show.
func (l *eventLog) publish(at time.Time, kind api.EventType, data api.EventData) {
	data.Cluster = l.run.state.Config.Name
	l.kept.Add(cluster.Event{Type: kind, Time: at.UTC(), EventData: data}, cluster.MaxEventsKept)
}
