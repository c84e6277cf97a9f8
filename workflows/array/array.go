// Package array is the Array workflow: it delivers the elements of an array in bundles. What comes next is decided by
// array.State.
package array

import (
	"cmp"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/mainstay/workflows/delivery"
	"mainstay.dev/sdk/api"
)

const (
	// quietEvents and quietBytes are how long the history may be before nothing new begins until the workflow can
	// continue as new. Temporal's own suggestion comes far too early: the array runs dry each time.
	quietEvents = 10_000
	quietBytes  = 12 << 20
	// fullBytes is what the history may have with the ends of all bundles under way: Temporal ends a workflow at
	// 50 MiB. bundleEnd is what the end of one takes beside its results and its log.
	fullBytes = 44 << 20
	bundleEnd = 16 << 10
	// inputsATurn bounds the bytes of the bundles that begin in one turn: Temporal ends a workflow whose one answer is
	// larger than 4 MiB. bundleInput is what each takes beside its payloads.
	inputsATurn = 2 << 20
	bundleInput = 8 << 10
	// bundleMargin is how much longer than an element a bundle may take before Temporal ends it.
	bundleMargin = 10 * time.Second
	// cancelWait bounds how long a cancelled array waits for its agents to stop.
	cancelWait = 30 * time.Second
)

// Workflow delivers one array. One that completed, in part or whole, returns its state. Any other end is the workflow's
// failure (or cancellation) with the state as its detail.
func Workflow(ctx workflow.Context, in contract.ArrayInput) (contract.ArrayState, error) {
	id, _ := contract.ArrayOfWorkflowID(workflow.GetInfo(ctx).WorkflowExecution.ID)
	c := &carrier{in: in, id: id}
	if in.Carried != nil {
		c.state, c.paused, c.priority = in.Carried.State, in.Carried.Paused, in.Carried.Priority
		set := workflow.GetTypedSearchAttributes(ctx)
		c.marked, _ = set.GetKeyword(contract.AttrStatus)
		c.in.Carried = nil
	} else {
		c.state = array.New(in.Total())
	}
	if err := c.handle(ctx); err != nil {
		return contract.ArrayState{}, err
	}
	return c.loop(ctx)
}

// carrier is one run of an Array workflow. All that changes is in here.
type carrier struct {
	in       contract.ArrayInput
	id       string
	state    *array.State
	priority api.Priority // as a person has set it; zero: the definition's
	paused   *contract.ArrayRequest
	cancel   *contract.ArrayRequest
	until    *time.Time // when dead letters are given up
	marked   string     // the status search attribute as last set
	final    api.ArrayStatus
	why      string

	work    workflow.Context // of deliveries
	stop    workflow.CancelFunc
	turn    time.Time // Temporal's time of the present turn
	bytes   int       // of the bundles that began in it
	wakesAt time.Time // of the earliest timer; zero: none
	changed bool      // something happened that the loop has not looked at
	changes workflows.Changes
	inbox   contract.Inbox[contract.ArrayRequest]
}

// loop begins bundles until the array has ended.
func (c *carrier) loop(ctx workflow.Context) (contract.ArrayState, error) {
	c.work, c.stop = workflow.WithCancel(ctx)
	defer c.stop()
	for {
		c.changed = false
		if ctx.Err() != nil && c.cancel == nil {
			c.cancelled(&contract.ArrayRequest{Reason: "the workflow was cancelled"})
		}
		quiet := c.quiet(ctx)
		if quiet && c.state.UnderWay() == 0 && workflow.AllHandlersFinished(ctx) {
			if c.heed(ctx); c.cancel == nil { // what is not taken now is lost
				return contract.ArrayState{}, c.continueAsNew(ctx)
			}
		}
		if !quiet && c.paused == nil && c.cancel == nil {
			c.launch(ctx)
		}
		switch {
		case c.cancel != nil:
			return c.end(ctx)
		case !c.state.Open() && (!c.held() || c.state.Stopped != ""):
			return c.end(ctx)
		case !c.state.Open():
			if !c.awaitPerson(ctx) {
				return c.end(ctx)
			}
			continue
		}
		c.show(ctx, c.mark())
		c.wake(ctx)
		_ = workflow.Await(ctx, func() bool { return c.changed || ctx.Err() != nil && c.cancel == nil })
	}
}

// held reports whether elements wait for a person. Dead letters of a step do not.
func (c *carrier) held() bool {
	if c.in.Step {
		return c.state.Counts.Review > 0
	}
	return c.state.Held()
}

// quiet reports whether the history is long, so that the workflow continues as new once nothing is under way.
func (c *carrier) quiet(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetCurrentHistoryLength() > quietEvents || info.GetCurrentHistorySize() > quietBytes
}

func (c *carrier) continueAsNew(ctx workflow.Context) error {
	next := c.in
	next.Carried = &contract.ArrayCarried{State: c.state, Paused: c.paused, Priority: c.priority}
	return workflow.NewContinueAsNewError(ctx, contract.ArrayWorkflow, next)
}

// launch begins the bundles that may begin.
func (c *carrier) launch(ctx workflow.Context) {
	for {
		now := workflow.Now(ctx)
		if !now.Equal(c.turn) {
			c.turn, c.bytes = now, 0
		}
		if c.bytes > inputsATurn {
			_ = workflow.Sleep(ctx, time.Millisecond) // the rest begins in another turn
			if c.paused != nil || c.cancel != nil || ctx.Err() != nil {
				return
			}
			continue
		}
		if !c.room(ctx) {
			return
		}
		b, ok := c.state.Begin(&c.in.Definition, now)
		if !ok {
			return
		}
		c.bytes += bundleInput
		for _, n := range b.Elements {
			c.bytes += len(c.in.Payload(n))
		}
		c.deliver(b)
	}
}

// room reports whether the history has room for the end of one more bundle.
func (c *carrier) room(ctx workflow.Context) bool {
	limit := c.in.ResultLimit()
	ends := (c.state.UnderWay() + 1) * (limit + contract.ElementLogLimit(limit) + bundleEnd)
	return !c.quiet(ctx) && workflow.GetInfo(ctx).GetCurrentHistorySize()+c.bytes+ends <= fullBytes
}

// deliver puts a bundle into its lane, and takes its end.
func (c *carrier) deliver(b array.Bundle) {
	task, number := b.TaskID(c.id), b.Attempt()
	ctx := workflow.WithActivityOptions(c.work, workflow.ActivityOptions{
		ActivityID:             contract.AttemptActivityID(task, number),
		TaskQueue:              c.in.Lane,
		ScheduleToStartTimeout: c.in.Spec.ExpiresIn.Or(api.DefaultExpiration),
		StartToCloseTimeout: c.in.Spec.Timeout.Or(api.DefaultTaskTimeout) + bundleMargin + c.in.Spec.Grace() +
			delivery.TimeoutMargin,
		HeartbeatTimeout:    api.AttemptBackstop + c.in.Spec.AwaitedFor(nil),
		WaitForCancellation: true,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	if c.priority != 0 {
		ctx = workflow.WithPriority(ctx, temporal.Priority{PriorityKey: int(c.priority)})
	}
	future := workflows.RunTask(ctx, c.input(&b, task, number))
	workflow.Go(ctx, func(ctx workflow.Context) {
		ctx, done := workflow.NewDisconnectedContext(ctx)
		defer done()
		report, err := future.Get(ctx)
		end := array.End{Results: report.Elements}
		if err != nil {
			report, end.Expired = delivery.EndOf(err)
			end.Results = report.Elements
		}
		end.AttemptEnd = report.End()
		if end.Unhandled && c.cancel == nil {
			c.in.Lane = workflows.PlaceAgain(ctx, &c.in.Spec, c.in.Lane)
		}
		if err == nil {
			end.Outcome = api.AttemptCompleted
		}
		c.state.Take(&c.in.Definition, c.id, b.Number, end, workflow.Now(ctx))
		c.changed = true
	})
}

// input is what a hub needs to give a bundle to an agent.
func (c *carrier) input(b *array.Bundle, task string, number int) contract.RunTaskInput {
	in := contract.RunTaskInput{TaskID: task, Attempt: number, Spec: c.in.Spec, ResultLimit: c.in.ResultLimit()}
	if b.Single() {
		in.Spec.Payload, in.Element = c.in.Payload(b.Elements[0]), &b.Elements[0]
		return in
	}
	in.Spec.Payload = nil
	for i, n := range b.Elements {
		in.Elements = append(in.Elements, api.Element{Number: n, ID: array.ElementID(c.id, n), Attempt: b.Attempts[i],
			Payload: c.in.Payload(n)})
	}
	return in
}

// wake makes the loop look again when an element may be tried again. There is one timer for the earliest.
func (c *carrier) wake(ctx workflow.Context) {
	now := workflow.Now(ctx)
	at := c.state.Wake(&c.in.Definition, now)
	if at.IsZero() || !c.wakesAt.IsZero() && !at.Before(c.wakesAt) {
		return
	}
	c.wakesAt = at
	workflow.Go(ctx, func(ctx workflow.Context) {
		_ = workflow.NewTimerWithOptions(ctx, max(at.Sub(now), time.Millisecond),
			workflow.TimerOptions{Summary: "before elements are tried again"}).Get(ctx, nil)
		if c.wakesAt.Equal(at) {
			c.wakesAt = time.Time{}
		}
		c.changed = true
	})
}

// waitsForPerson says what of an array waits for a person.
func waitsForPerson(n api.ElementCounts) string {
	dead, reviews := api.Count(n.DeadLetter, "dead letter"), api.Count(n.Review, "review")
	switch {
	case n.Review == 0:
		return dead + api.Plural(n.DeadLetter, " waits", " wait") + " for a person"
	case n.DeadLetter == 0:
		return reviews + api.Plural(n.Review, " waits", " wait") + " for a person"
	}
	return dead + " and " + reviews + " wait for a person"
}

// awaitPerson keeps dead letters and reviews until a person has decided. It reports false when their retention is over.
func (c *carrier) awaitPerson(ctx workflow.Context) bool {
	c.show(ctx, string(api.ArrayBlocked))
	retention := c.in.DeadLetterRetention.Or(api.DefaultDeadLetterRetention)
	until := workflow.Now(ctx).Add(retention)
	c.until = &until
	decided, _ := workflow.AwaitWithOptions(ctx, workflows.Named(retention, "dead letters, kept for a retry"),
		func() bool { return c.changed || ctx.Err() != nil })
	c.until = nil
	return decided || ctx.Err() != nil
}

// end waits for the bundles under way, and closes the workflow as the array ended.
func (c *carrier) end(ctx workflow.Context) (contract.ArrayState, error) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if c.cancel != nil {
		c.stop()
		_, _ = workflow.AwaitWithOptions(ctx,
			workflows.Named(cancelWait+c.in.Spec.Grace(), "until the agents have stopped"),
			func() bool { return c.state.UnderWay() == 0 })
		c.state.Abandon()
	}
	c.final, c.why = c.state.Outcome(&c.in.Definition, c.cancel != nil)
	mark := ""
	if c.final == api.ArrayPartial {
		mark = string(c.final)
	}
	c.show(ctx, mark)
	_ = workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
	state := c.view()
	switch c.final {
	case api.ArrayCompleted, api.ArrayPartial:
		return state, nil
	case api.ArrayCancelled:
		return contract.ArrayState{}, temporal.NewCanceledError(state)
	}
	return contract.ArrayState{}, temporal.NewApplicationErrorWithOptions("array failed: "+c.why, string(c.final),
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{state}})
}

// mark is the status that lists show beside the workflow's own.
func (c *carrier) mark() string {
	if c.paused != nil {
		return string(api.ArrayPaused)
	}
	return ""
}

// show sets the status search attribute, if it has changed.
func (c *carrier) show(ctx workflow.Context, mark string) {
	if mark == c.marked {
		return
	}
	c.marked = mark
	update := contract.AttrStatus.ValueUnset()
	if mark != "" {
		update = contract.AttrStatus.ValueSet(mark)
	}
	err := workflow.UpsertTypedSearchAttributes(ctx, update, contract.AttrStatusAt.ValueSet(workflow.Now(ctx)))
	if err != nil {
		workflow.GetLogger(ctx).Warn("The status search attribute was not set", "error", err)
	}
}

// view is the array as it stands now.
func (c *carrier) view() contract.ArrayState {
	state := contract.ArrayState{Status: c.final, Why: c.why, Counts: c.state.Counts, Priority: c.priority,
		Duplicates: c.state.Duplicates, Flying: c.state.Flying(c.id), Until: c.until}
	switch {
	case c.final != "":
	case c.cancel != nil:
		state.Status, state.Why = api.ArrayRunning, "it is being cancelled: "+c.cancel.Reason
	case c.paused != nil:
		state.Status, state.Why = api.ArrayPaused, c.paused.Reason
	case !c.state.Open():
		state.Status = api.ArrayBlocked
		state.Why = waitsForPerson(c.state.Counts)
	default:
		state.Status, state.Why = api.ArrayRunning, c.state.HoldWhy
	}
	return state
}

// cancelled ends the elements that have not begun.
func (c *carrier) cancelled(r *contract.ArrayRequest) {
	r.Reason = cmp.Or(r.Reason, "cancelled by request")
	c.cancel, c.changed = r, true
	c.state.Cancel(r.Reason)
	c.state.CancelHeld(r.Reason)
}

// elements answers a page of elements.
func (c *carrier) elements(r contract.ElementsRequest) (page contract.ElementsPage) {
	page.Elements, page.Next = c.state.Elements(c.id, r.Status, r.From, r.Limit)
	return page
}

// handle answers queries, and lets people act on the array.
func (c *carrier) handle(ctx workflow.Context) error {
	c.inbox = contract.ArraySignal.Inbox(ctx)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for workflow.Await(ctx, func() bool { return c.inbox.Len() > 0 }) == nil {
			c.heed(ctx)
		}
	})
	return errors.Join(
		contract.ArrayQuery.Handle(ctx, c.view),
		contract.ElementsQuery.Handle(ctx, c.elements),
		contract.ArrayUpdate.Handle(ctx, func(ctx workflow.Context, r contract.ArrayRequest) (contract.Done, error) {
			switch r.Action {
			case contract.PauseArray, contract.ResumeArray, contract.ReprioritizeArray:
				c.changes.Take()
			}
			c.act(ctx, &r)
			return contract.Done{}, nil
		}, c.mayChange))
}

// heed takes the signals that are there.
func (c *carrier) heed(ctx workflow.Context) {
	c.inbox.Take(func(r contract.ArrayRequest) {
		if c.mayAct(r) == nil {
			c.act(ctx, &r)
		}
	})
}

// mayChange is mayAct for updates, which must leave room for a cancellation. What was paused can be resumed, however
// often it was.
func (c *carrier) mayChange(r contract.ArrayRequest) error {
	err := c.mayAct(r)
	switch {
	case err != nil:
		return err
	case r.Action == contract.ReprioritizeArray && r.Priority == cmp.Or(c.priority, c.in.Spec.Priority).OrDefault():
		return workflows.Unchanged("the array has this priority already")
	case r.Action == contract.ReprioritizeArray || r.Action == contract.PauseArray:
		return c.changes.Refuse()
	}
	return nil
}

// mayAct refuses what is not possible in the present state.
func (c *carrier) mayAct(r contract.ArrayRequest) error {
	switch {
	case c.final != "":
		return workflows.Refuse("the array has ended: it is %s", c.final)
	case c.cancel != nil:
		return workflows.Refuse("the array is being cancelled")
	}
	switch r.Action {
	case contract.PauseArray:
		if c.paused != nil {
			return workflows.Refuse("the array is paused")
		}
	case contract.ResumeArray:
		if c.paused == nil {
			return workflows.Refuse("the array is not paused")
		}
	case contract.RetryArray:
		if c.state.Stopped != "" {
			return workflows.Refuse("the array is ending: %s", c.state.Stopped)
		}
		if err := c.state.MayRetry(r.Elements); err != nil {
			return workflows.Refuse("%s", err)
		}
	case contract.ReprioritizeArray:
		if !r.Priority.Valid() {
			return workflows.Refuse("%s", api.ErrPriority)
		}
	case contract.CancelArray:
	default:
		return workflows.Refuse("there is no such action")
	}
	return nil
}

// act does what mayAct has found possible.
func (c *carrier) act(ctx workflow.Context, r *contract.ArrayRequest) {
	switch r.Action {
	case contract.PauseArray:
		c.paused = r
	case contract.ResumeArray:
		c.state.Resume(workflow.Now(ctx))
		c.paused = nil
	case contract.RetryArray:
		c.state.Retry(r.Elements)
	case contract.ReprioritizeArray:
		c.priority = r.Priority
	case contract.CancelArray:
		c.cancelled(r)
	}
	c.changed = true
}
