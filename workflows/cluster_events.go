package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// clusterLog keeps the cluster's newest events for whoever asks. It writes nothing of its own: the events follow from the
// state, which history gives back.
type clusterLog struct {
	events fleet.EventLog
	known  *fleet.ClusterSnapshot // the state up to which events are kept

	announced contract.Inbox[contract.Announcement]
}

// openLog takes over what the run before kept, and answers queries.
func (r *clusterRun) openLog(ctx workflow.Context, in contract.ClusterInput) error {
	if in.Events != nil {
		r.log.events = *in.Events
	}
	r.log.announced = contract.AnnounceSignal.Inbox(ctx)
	r.log.known = r.state.Snapshot()
	if in.State == nil {
		r.tell(r.created, fleet.EventClusterCreated, fleet.EventData{})
	}
	return contract.EventsQuery.Handle(ctx, func(q contract.EventsSince) contract.ClusterEvents {
		answer := contract.ClusterEvents{CreatedAt: r.created, Seq: r.log.events.Seq}
		if q.From.IsZero() {
			answer.Events, answer.Missing = r.log.events.After(q.After)
			return answer
		}
		events, missing := r.log.events.Since(q.From)
		if answer.Events = events; missing {
			answer.Missing = 1
		}
		return answer
	})
}

// note keeps the events that led to the state as it is now. It is called after every step.
func (r *clusterRun) note(ctx workflow.Context) {
	events, known := r.state.Changes(r.log.known, workflow.Now(ctx))
	for _, e := range events {
		r.log.events.Add(e, fleet.MaxEventsKept)
	}
	r.log.known = known
}

// tell keeps an event that the state does not show.
func (r *clusterRun) tell(at time.Time, kind fleet.EventType, data fleet.EventData) {
	data.Cluster = r.state.Config.Name
	r.log.events.Add(fleet.Event{Type: kind, Time: at.UTC(), EventData: data}, fleet.MaxEventsKept)
}

// takeAnnouncements keeps what others tell of the cluster.
func (r *clusterRun) takeAnnouncements(ctx workflow.Context) {
	r.log.announced.Take(func(a contract.Announcement) {
		for _, e := range a.Events[:min(len(a.Events), fleet.MaxEventsKept)] {
			if e.Time.IsZero() {
				e.Time = workflow.Now(ctx)
			}
			r.tell(e.Time, e.Type, e.EventData)
		}
	})
}

// announce tells a cluster of events, from another workflow. An event that is lost changes nothing.
func announce(ctx workflow.Context, cluster string, events ...fleet.Event) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	for i := range events {
		events[i].Time = workflow.Now(ctx).UTC()
	}
	err := contract.AnnounceSignal.SendFrom(ctx, contract.ClusterWorkflowID(cluster), "", contract.Announcement{Events: events}).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Info("An event was not told to the cluster", "cluster", cluster, "error", err)
	}
}

// followFailover keeps the event of a failover's end. One that ends after this run of the workflow is told by nobody; its
// record has it.
func (r *clusterRun) followFailover(ctx workflow.Context, in contract.FailoverInput, child workflow.ChildWorkflowFuture) {
	id := contract.FailoverID(in.Cluster, in.FailedAgent, in.Epoch)
	r.tell(workflow.Now(ctx), fleet.EventFailoverStarted, fleet.EventData{
		AgentID: in.FailedAgent, Epoch: in.Epoch, Hub: in.Hub, TargetAgentID: in.Target, Shards: in.Shards, ID: id, Count: len(in.Attempts), Reason: in.Reason})
	workflow.GoNamed(ctx, "await "+id, func(ctx workflow.Context) {
		var record fleet.FailoverRecord
		data := fleet.EventData{AgentID: in.FailedAgent, Epoch: in.Epoch, TargetAgentID: in.Target, ID: id}
		if err := child.Get(ctx, &record); err != nil {
			data.Outcome, data.Reason = string(fleet.FailoverFailed), "its workflow did not complete"
		} else {
			data.Outcome, data.Reason, data.Count = string(record.Status), record.Error, record.TasksTransferred
		}
		r.tell(workflow.Now(ctx), fleet.EventFailoverEnded, data)
	})
}

// followSync keeps the event of a state sync's end, if it ends within this run of the workflow.
func (r *clusterRun) followSync(ctx workflow.Context, child workflow.ChildWorkflowFuture) {
	workflow.GoNamed(ctx, "await a state sync", func(ctx workflow.Context) {
		var report fleet.SyncReport
		data := fleet.EventData{}
		if err := child.Get(ctx, &report); err != nil {
			data.Outcome, data.Reason = string(fleet.SyncFailed), "its workflow did not complete"
		} else {
			data.Outcome, data.Reason = string(report.Status), report.Why
		}
		r.tell(workflow.Now(ctx), fleet.EventStateSync, data)
	})
}
