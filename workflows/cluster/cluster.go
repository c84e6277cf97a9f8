// Package cluster is the Cluster workflow: the single writer of a cluster's membership, roles, epochs and lane
// ownership.
package cluster

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows"
)

// longHistory is the history length at which a Cluster continues as new, well below the server's suggestion, so that a
// replay after a worker restart stays quick.
const longHistory = 1500

// largeHistory is the size of the history, in bytes, at which a Cluster continues as new although its hubs lack the
// newest directive. Each answer to a join has a directive, which may have many kilobytes.
const largeHistory = 10 << 20

// fullHistory is the size of the history, in bytes, and fullLength its length, from which on a Cluster takes no updates
// until it has continued as new: Temporal terminates a workflow whose history has 50 MiB or 51,200 events, and what is
// under way needs room.
const fullHistory, fullLength = 20 << 20, 8 * longHistory

// Workflow lives until the cluster is deleted.
func Workflow(ctx workflow.Context, in contract.ClusterInput) error {
	r, err := newRun(ctx, in)
	if err != nil {
		return err
	}
	return r.loop(ctx)
}

// run is one run of a Cluster workflow. All that changes and is carried on is in state and events.
type run struct {
	state   cluster.Cluster
	created time.Time
	deleted bool
	touched bool // another coroutine changed the state since the loop looked
	alarm   alarm

	parts     []part // in the order in which they settle
	events    eventLog
	hubs      hubs
	members   members
	brakes    brakes
	roles     roles
	failovers failovers
	loads     loads
	states    states
	scaling   scaler
	lanes     lanes
	watchers  watchers
}

// part is one concern of a cluster.
type part interface {
	// open takes over the previous run's state.
	open(ctx workflow.Context, in contract.ClusterInput)
	// handle registers the part's updates and queries. An update that waits already runs at once, so all parts are open
	// before.
	handle(ctx workflow.Context) error
	// signalled reports whether signals wait for settle.
	signalled() bool
	// settle applies the signals and does what is due. The loop calls it after every change, and also without one.
	settle(ctx workflow.Context)
	// wake is when settle is due without a change, with the reason; zero: never.
	wake() (at time.Time, why string)
}

// quiet is a part without signals, work of its own or a time.
type quiet struct{}

func (quiet) open(workflow.Context, contract.ClusterInput) {}
func (quiet) handle(workflow.Context) error                { return nil }
func (quiet) signalled() bool                              { return false }
func (quiet) settle(workflow.Context)                      {}
func (quiet) wake() (time.Time, string)                    { return time.Time{}, "" }

func newRun(ctx workflow.Context, in contract.ClusterInput) (*run, error) {
	r := &run{created: workflow.GetInfo(ctx).WorkflowStartTime}
	if in.State != nil {
		r.state, r.created = *in.State, in.CreatedAt
	}
	r.state.Config = in.Config.WithDefaults()
	r.events.run, r.hubs.run, r.members.run, r.brakes.run, r.roles.run = r, r, r, r, r
	r.failovers.run, r.loads.run, r.states.run, r.scaling.run, r.lanes.run, r.watchers.run = r, r, r, r, r, r
	r.parts = []part{&r.members, &r.brakes, &r.failovers, &r.events, &r.states, &r.scaling, &r.roles, &r.loads,
		&r.lanes, cordons{run: r}, pauses{run: r}, settings{run: r}, &r.watchers, &r.hubs}
	for _, p := range r.parts {
		p.open(ctx, in)
	}
	for _, p := range r.parts {
		if err := p.handle(ctx); err != nil {
			return nil, err
		}
	}
	return r, contract.ViewQuery.Handle(ctx, r.view)
}

func (r *run) view() contract.ClusterView {
	return contract.ClusterView{Cluster: r.state.View(), CreatedAt: r.created}
}

// loop settles all parts, updates hubs, starts failovers, and waits for the next change, until the cluster is deleted
// or the history is long enough.
func (r *run) loop(ctx workflow.Context) error {
	for {
		r.touched = false
		for _, p := range r.parts {
			p.settle(ctx)
			r.events.record(ctx)
		}
		switch {
		case !(r.longEnough(ctx) && r.idle(ctx)) && r.failovers.next() > 0:
			r.failovers.start(ctx)
		case ctx.Err() != nil:
			return ctx.Err()
		case r.deleted && r.idle(ctx):
			return nil
		case r.longEnough(ctx) && r.idle(ctx):
			next, fits := (&contract.ClusterInput{
				Config:     r.state.Config,
				State:      &r.state,
				CreatedAt:  r.created,
				Events:     &r.events.kept,
				Resend:     len(r.hubs.lacking()) > 0,
				FormerHubs: r.hubs.former,

				IdleFailovers: r.failovers.left(),
			}).PackShort()
			if !fits {
				workflow.GetLogger(ctx).Error("The cluster's state does not fit into a message: delete members or the cluster")
			}
			return workflow.NewContinueAsNewError(ctx, contract.ClusterWorkflow, next)
		default:
			r.scaling.decide(ctx)
			r.wait(ctx)
		}
	}
}

// wait returns when there is something to do.
func (r *run) wait(ctx workflow.Context) {
	var next time.Time
	var why string
	for _, p := range r.parts {
		if at, reason := p.wake(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next, why = at, reason
		}
	}
	r.alarm.set(ctx, next, why)
	_ = workflow.Await(ctx, func() bool {
		return r.touched || r.signalled() || r.alarm.rang() || (r.deleted || r.longEnough(ctx)) && r.idle(ctx)
	})
}

func (r *run) signalled() bool {
	for _, p := range r.parts {
		if p.signalled() {
			return true
		}
	}
	return false
}

// idle reports whether the run may end: nothing that it began outside the loop is under way, and no decision and no
// message is left.
func (r *run) idle(ctx workflow.Context) bool {
	return (r.hubs.sending == 0 || largeEnough(ctx)) && r.hubs.releasing == 0 && len(r.brakes.leaving) == 0 &&
		r.failovers.canBeLeft() && !r.loads.asking && !r.lanes.asking &&
		len(r.scaling.queue) == 0 && !r.signalled() &&
		workflow.AllHandlersFinished(ctx)
}

func (r *run) longEnough(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() > longHistory || largeEnough(ctx)
}

func largeEnough(ctx workflow.Context) bool {
	return workflow.GetInfo(ctx).GetCurrentHistorySize() > largeHistory
}

// alarm is the one timer of the loop. It stays when something else ends a wait, so that only a new time costs history.
type alarm struct {
	at     time.Time
	timer  workflow.Future
	cancel workflow.CancelFunc
}

// set sets the time of the alarm; zero: never.
func (a *alarm) set(ctx workflow.Context, at time.Time, why string) {
	if a.timer != nil && !a.rang() {
		if at.Equal(a.at) {
			return
		}
		a.cancel()
	}
	*a = alarm{at: at}
	if at.IsZero() {
		return
	}
	ctx, a.cancel = workflow.WithCancel(ctx)
	a.timer = workflow.NewTimerWithOptions(ctx, max(at.Sub(workflow.Now(ctx)), time.Millisecond),
		workflow.TimerOptions{Summary: why})
}

func (a *alarm) rang() bool { return a.timer != nil && a.timer.IsReady() }

// handle answers an update of a cluster that is not being deleted. validate may be nil.
func handle[In, Out any](
	ctx workflow.Context, r *run, update contract.Update[In, Out], do func(workflow.Context, In) (Out, error),
	validate func(In) error,
) error {
	return update.Handle(ctx, func(ctx workflow.Context, in In) (Out, error) {
		r.touched = true
		out, err := do(ctx, in)
		r.events.record(ctx)
		return out, err
	}, func(in In) error {
		if r.deleted {
			return workflows.Refuse("the cluster is being deleted")
		}
		info := workflow.GetInfo(ctx)
		if info.GetCurrentHistorySize() > fullHistory || info.GetCurrentHistoryLength() > fullLength {
			return temporal.NewApplicationError("the cluster has much to do; try again in a moment", contract.Busy)
		}
		if validate == nil {
			return nil
		}
		return validate(in)
	})
}
