package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

const (
	// dispatchTimeout bounds one try to dispatch an event.
	dispatchTimeout = 30 * time.Second
	// unmatchedKept is how long an event that nothing asked for can be replayed.
	unmatchedKept = 7 * 24 * time.Hour
	// maxDeath bounds in bytes why something died, which is kept for each time.
	maxDeath = 1 << 10
	// replayedBytes is how long the history may be for another replay: each may bring data of its own.
	replayedBytes = 24 << 20
)

// Inbound is an event from outside. It starts what the event asks for. An event that cannot be dispatched stays in
// quarantine until a person replays or discards it: in this workflow, so that it is not taken for a repetition.
func Inbound(ctx workflow.Context, in contract.InboundInput) (api.InboundEvent, error) {
	e := &in.Event
	id, _ := contract.InboundOfWorkflowID(workflow.GetInfo(ctx).WorkflowExecution.ID)
	i := &inbound{event: e, record: api.InboundEvent{ID: id, Tenant: e.Tenant(), EventID: e.Attr("id"),
		Source: e.Attr("source"), Type: e.Attr("type"), CorrelationID: e.Attr(api.AttrCorrelation),
		Status: api.InboundReceived, ReceivedAt: workflow.GetInfo(ctx).WorkflowStartTime.UTC()},
		outcomes: contract.OutcomeSignal.Inbox(ctx)}
	if in.Carried != nil {
		i.record, i.whole = *in.Carried, true
		i.record.EndedAt = nil
	}
	if tenant, _ := api.CutTenant(id); mesh.AssertTenant(e.Tenant(), tenant) != nil {
		return i.record, temporal.NewNonRetryableApplicationError(mesh.ErrTenant.Error(), "tenant_mismatch", nil,
			i.record)
	}
	err := errors.Join(
		contract.InboundQuery.Handle(ctx, func() api.InboundEvent { return i.record }),
		contract.ReplayEventUpdate.Handle(ctx, i.replay, func(in contract.ReplayEvent) error {
			if in.Data != nil && i.whole {
				return Refuse("what it asks for has begun with its own data: replay it without data, or send another event")
			}
			if workflow.GetInfo(ctx).GetCurrentHistorySize() > replayedBytes {
				return Refuse("the event was replayed so often that its history is full: discard it, and send another")
			}
			return i.mayAct()
		}),
		contract.DiscardEventUpdate.Handle(ctx, i.discard, func(contract.RunRequest) error { return i.mayAct() }))
	if err != nil {
		return i.record, err
	}
	if in.Before != "" {
		i.forget(ctx, in.Before)
	}
	for finished := false; !finished; finished = i.ended(ctx) {
		for !i.ended(ctx) {
			if i.record.Status == api.InboundReceived {
				i.dispatch(ctx)
			}
			i.settle(ctx)
			i.show(ctx)
			i.wait(ctx)
		}
		_ = workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
	}
	if dead := mesh.DeadDispatches(&i.record); len(dead) > 0 && i.record.Status == api.InboundDiscarded {
		if answer := i.revive(ctx, dead); answer.Problem != "" {
			i.record.Why += "; not all that died is given up: " + answer.Problem
		}
	}
	now := workflow.Now(ctx).UTC()
	i.record.EndedAt = &now
	return i.record, ctx.Err()
}

// inbound is one run of an Inbound workflow.
type inbound struct {
	event  *api.Envelope
	record api.InboundEvent
	tries  int               // since the event came, or was replayed
	marked api.InboundStatus // the status search attribute as last set
	over   bool              // it has been unmatched for long
	whole  bool              // all that it asks for was started
	late   bool              // it waits for others of its tenant

	outcomes contract.Inbox[contract.EventOutcome] // of what it started
}

func (i *inbound) ended(ctx workflow.Context) bool {
	return i.over || ctx.Err() != nil || i.record.Status == api.InboundDiscarded ||
		i.record.Status == api.InboundDispatched && i.outcomes.Len() == 0
}

// forget removes the run of the workflow before this one: lists show each event once.
func (i *inbound) forget(ctx workflow.Context, before string) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: dispatchTimeout,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 10}, Summary: "remove the run before this one"})
	_, err := contract.ForgetRunActivity.Execute(ctx, contract.ForgetRun{
		WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID, RunID: before}).Get(ctx)
	if err != nil {
		workflow.GetLogger(ctx).Warn("Lists show the event twice: a run before this one was not removed", "error", err)
	}
}

// settle takes the reports about what the event started. A death brings the event into quarantine.
func (i *inbound) settle(ctx workflow.Context) {
	for told, ok := i.outcomes.Next(); ok; told, ok = i.outcomes.Next() {
		switch known := mesh.SettleDispatch(&i.record, told.ID, told.Died); {
		case !known || i.record.Status == api.InboundDiscarded:
		case told.Died != "":
			i.quarantine(ctx, api.Shorten(told.ID+" died: "+told.Died, maxDeath), told.Cluster)
		case i.whole && len(mesh.DeadDispatches(&i.record)) == 0:
			i.record.Status, i.record.Why = api.InboundDispatched, ""
		}
	}
}

// quarantine makes the event wait for a person.
func (i *inbound) quarantine(ctx workflow.Context, why, clusterName string) {
	now := workflow.Now(ctx).UTC()
	i.record.Why = why
	mesh.FailEvent(&i.record, why, now)
	i.record.Status, i.record.QuarantinedAt = api.InboundQuarantined, &now
	if clusterName != "" {
		announce(ctx, clusterName, cluster.Event{Type: api.EventQuarantined, EventData: api.EventData{
			Cluster: clusterName, Tenant: i.record.Tenant, ID: i.record.ID, Reason: why}})
	}
}

// TellEvent reports to an event from outside the outcome of something that it started, until it has the report.
func TellEvent(ctx workflow.Context, outcome contract.EventOutcome) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: dispatchTimeout,
		RetryPolicy: &temporal.RetryPolicy{MaximumInterval: dispatchTimeout}, Summary: "tell its event"})
	if _, err := contract.TellEventActivity.Execute(ctx, outcome).Get(ctx); err != nil {
		workflow.GetLogger(ctx).Warn("An event was not told what died", "event", outcome.Event, "error", err)
	}
}

// dispatch tries until all that asks for the event is started, or its tries are used up.
func (i *inbound) dispatch(ctx workflow.Context) {
	for i.tries = 1; ctx.Err() == nil; i.tries++ {
		answer := i.try(ctx)
		if answer.Problem == "" {
			i.record.Status, i.record.Why = api.InboundDispatched, ""
			i.whole = len(i.record.Dispatches) > 0
			if len(i.record.Dispatches) == 0 {
				i.record.Status = api.InboundUnmatched
				i.record.Why = "no job has a trigger for it, and its type assigns no task"
			}
			return
		}
		wait, again := mesh.NextTry(i.tries)
		if !again {
			i.quarantine(ctx, answer.Problem, answer.Cluster)
			return
		}
		i.record.Why = answer.Problem
		mesh.FailEvent(&i.record, answer.Problem, workflow.Now(ctx).UTC())
		_ = workflow.Sleep(ctx, wait)
	}
}

// try tries once to start what the event asks for, and what has died of it.
func (i *inbound) try(ctx workflow.Context) (answer contract.EventDispatched) {
	if !i.whole {
		answer = i.start(ctx)
		mesh.AddDispatches(&i.record, answer.Dispatches)
	}
	if dead := mesh.DeadDispatches(&i.record); len(dead) > 0 {
		revived := i.revive(ctx, dead)
		mesh.ReviveDispatches(&i.record, revived.Dispatches)
		if answer.Problem == "" {
			answer.Problem, answer.Cluster = revived.Problem, revived.Cluster
		}
	}
	return answer
}

// revive starts again what died, or gives it up with a discarded event.
func (i *inbound) revive(ctx workflow.Context, dead []api.Dispatch) contract.EventDispatched {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: dispatchTimeout,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 3}, Summary: "what died of the event"})
	decided := i.record.Decisions[len(i.record.Decisions)-1]
	answer, err := contract.ReviveActivity.Execute(ctx, contract.Revive{Event: i.record.ID, EventID: i.record.EventID,
		Dead: dead, Discard: i.record.Status == api.InboundDiscarded,
		RunRequest: contract.RunRequest{By: decided.By, Reason: decided.Reason}}).Get(ctx)
	if err != nil {
		answer.Problem = ReasonOf(err)
	}
	return answer
}

// mostTurns is how often a try looks whether it is the tenant's turn, for about six hours. History has a bound.
const mostTurns = 500

// start starts what the event asks for.
func (i *inbound) start(ctx workflow.Context) contract.EventDispatched {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: dispatchTimeout,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                "dispatch the event",
	})
	for n := 1; ; n++ {
		answer, err := contract.DispatchEventActivity.ExecuteLocal(ctx, contract.DispatchEvent{
			ID: i.record.ID, Event: *i.event, Data: i.record.Corrected}).Get(ctx)
		if i.late = IsType(err, contract.NotTheirTurn) && ctx.Err() == nil && n < mostTurns; i.late {
			i.record.Why = ReasonOf(err)
			_ = workflow.Sleep(ctx, task.TurnWait(i.record.ID, n))
			continue
		}
		if err != nil {
			answer.Problem = api.Shorten(ReasonOf(err), mesh.MaxProblem)
		}
		return answer
	}
}

// wait waits until a person decides, or nobody has for long.
func (i *inbound) wait(ctx workflow.Context) {
	decided := func() bool { return !i.record.Status.Waits() || i.outcomes.Len() > 0 }
	if i.record.Status == api.InboundUnmatched {
		found, err := workflow.AwaitWithOptions(ctx, Named(unmatchedKept, "unmatched"), decided)
		i.over = !found && err == nil
		return
	}
	_ = workflow.Await(ctx, decided)
}

// show sets the search attribute where the workflow's own status does not show the event's.
func (i *inbound) show(ctx workflow.Context) {
	mark := i.record.Status
	if mark == api.InboundDispatched || mark == api.InboundReceived {
		mark = ""
	}
	if mark == i.marked {
		return
	}
	update := contract.AttrStatus.ValueUnset()
	if mark != "" {
		update = contract.AttrStatus.ValueSet(string(mark))
	}
	i.marked = mark
	err := workflow.UpsertTypedSearchAttributes(ctx, update, contract.AttrStatusAt.ValueSet(workflow.Now(ctx)))
	if err != nil {
		workflow.GetLogger(ctx).Warn("The status search attribute was not set", "error", err)
	}
}

func (i *inbound) mayAct() error {
	if !i.record.Status.Waits() {
		return Refuse("only an event that is quarantined or unmatched can be replayed or discarded; it is %s",
			i.record.Status)
	}
	return nil
}

func (i *inbound) decide(ctx workflow.Context, action string, in contract.RunRequest) {
	now := workflow.Now(ctx).UTC()
	mesh.DecideEvent(&i.record, api.InboundDecision{Action: action, By: in.By, Reason: in.Reason, At: now})
}

func (i *inbound) replay(ctx workflow.Context, in contract.ReplayEvent) (api.InboundEvent, error) {
	i.decide(ctx, "replay", in.RunRequest)
	if in.Data != nil {
		i.record.Corrected = in.Data
	}
	i.record.Status, i.tries = api.InboundReceived, 1
	err := workflow.Await(ctx, func() bool { return i.record.Status != api.InboundReceived || i.tries > 1 || i.late })
	return i.record, err
}

func (i *inbound) discard(ctx workflow.Context, in contract.RunRequest) (api.InboundEvent, error) {
	i.decide(ctx, "discard", in)
	i.record.Status, i.record.Why = api.InboundDiscarded, in.Reason
	i.show(ctx)
	return i.record, nil
}
