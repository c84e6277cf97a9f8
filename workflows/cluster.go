package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

const (
	// directTimeout bounds telling one hub of a change. A hub that misses it hears at its next join.
	directTimeout = 10 * time.Second
	// clusterEvents is the history length at which a Cluster continues as new, well below the server's suggestion, so
	// that a replay after a worker restart stays quick.
	clusterEvents = 1500
)

// Cluster is the single writer of a cluster's membership, roles, epochs and lane ownership. It lives until the cluster
// is deleted.
func Cluster(ctx workflow.Context, in contract.ClusterInput) error {
	run, err := newClusterRun(ctx, in)
	if err != nil {
		return err
	}
	return run.loop(ctx)
}

// clusterRun is one run of a Cluster workflow. All that changes and is carried on is in state.
type clusterRun struct {
	state   fleet.Cluster
	created time.Time
	deleted bool
	told    int64     // the directive version that all hubs are told
	heard   int64     // the one that they have heard of, or were not there to
	wake    time.Time // when a role becomes free that waits for a lease; zero: none waits
	joined  bool      // agents joined since the roles were settled
	telling int       // goroutines that tell former hubs
	former  []string  // hubs with sessions of replaced processes that were not told yet; they may have no member any more
	queue   []contract.FailoverInput
	release []contract.ReleaseBrakeRequest
	log     clusterLog

	targets []string // what the agent looked after whose roles were taken last

	reduced      bool // a load reduction changed since restoreLoads looked
	askingHealth bool // hubs are being asked how agents with reduced load do

	scaling clusterScaling

	changed   contract.Inbox[contract.MembersChanged]
	hubLost   contract.Inbox[contract.HubLost]
	manual    contract.Inbox[contract.ManualFailover]
	evacuated contract.Inbox[contract.Evacuated]
	states    contract.Inbox[contract.StatesChanged]
}

func newClusterRun(ctx workflow.Context, in contract.ClusterInput) (*clusterRun, error) {
	r := &clusterRun{
		created:   workflow.GetInfo(ctx).WorkflowStartTime,
		changed:   contract.MembersChangedSignal.Inbox(ctx),
		hubLost:   contract.HubLostSignal.Inbox(ctx),
		manual:    contract.ManualFailoverSignal.Inbox(ctx),
		evacuated: contract.EvacuatedSignal.Inbox(ctx),
		states:    contract.StatesSignal.Inbox(ctx),
		joined:    true,
		scaling:   newClusterScaling(ctx),
	}
	if in.State != nil {
		r.state, r.created = *in.State, in.CreatedAt
	}
	r.state.Config = in.Config.WithDefaults()
	r.told, r.heard = r.state.Version, r.state.Version
	if err := r.openLog(ctx, in); err != nil {
		return nil, err
	}
	if err := contract.ViewQuery.Handle(ctx, func() contract.ClusterView { return r.view() }); err != nil {
		return nil, err
	}
	return r, r.setUpdateHandlers(ctx)
}

// loop takes signals, settles roles, starts failovers and tells hubs until the cluster is deleted or the history is
// long enough.
func (r *clusterRun) loop(ctx workflow.Context) error {
	for {
		r.takeSignals(ctx)
		r.note(ctx)
		r.takeScalingSignals(ctx)
		r.settleRoles(ctx)
		r.restoreLoads(ctx)
		r.syncStates(ctx)
		r.note(ctx)
		switch {
		case r.told != r.state.Version:
			r.tellHubs(ctx)
			continue
		case len(r.release) > 0:
			r.tellRelease(ctx)
			continue
		case len(r.queue) > 0:
			r.startFailovers(ctx)
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case r.deleted && r.idle(ctx):
			return nil
		case r.longEnough(ctx) && r.idle(ctx):
			return workflow.NewContinueAsNewError(ctx, contract.ClusterWorkflow,
				contract.ClusterInput{Config: r.state.Config, State: &r.state, CreatedAt: r.created, Events: &r.log.events})
		}
		r.settleScaling(ctx)
		r.waitForWork(ctx)
	}
}

// waitForWork returns when something is to be done, at the latest when a role becomes free.
func (r *clusterRun) waitForWork(ctx workflow.Context) {
	ready := func() bool {
		return r.signalled() || r.told != r.state.Version || r.joined || r.reduced || len(r.release) > 0 || len(r.scaling.queue) > 0 || (r.deleted || r.longEnough(ctx)) && r.idle(ctx)
	}
	wake, why := earlier(earlier(r.wake, r.nextRestore()), earlier(r.state.SyncAt, r.scaling.wake)), "until a role is free"
	if wake.IsZero() {
		_ = workflow.Await(ctx, ready)
		return
	}
	switch {
	case wake.Equal(r.wake):
	case wake.Equal(r.scaling.wake):
		why = "until agents are tried again"
	default:
		why = "until agents get slots back, or states are synced again"
	}
	_, _ = workflow.AwaitWithOptions(ctx, named(max(wake.Sub(workflow.Now(ctx)), time.Millisecond), why), ready)
}

func (r *clusterRun) signalled() bool {
	return r.changed.Len() > 0 || r.hubLost.Len() > 0 || r.manual.Len() > 0 || r.evacuated.Len() > 0 || r.log.announced.Len() > 0 || r.states.Len() > 0 || r.scaling.signalled()
}

// idle reports whether the run may end: nothing that it began beside the loop is under way.
func (r *clusterRun) idle(ctx workflow.Context) bool {
	return r.telling == 0 && !r.askingHealth && len(r.scaling.queue) == 0 && workflow.AllHandlersFinished(ctx)
}

func (r *clusterRun) longEnough(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() > clusterEvents
}

// tellHubs hands the directive to every hub that has members, or had one that a newer process replaced elsewhere. A hub
// that does not answer hears at its next join.
func (r *clusterRun) tellHubs(ctx workflow.Context) {
	directive := r.directive()
	r.told = directive.Version
	hubs := r.state.Hubs()
	former := slices.DeleteFunc(r.former, func(hub string) bool { return slices.Contains(hubs, hub) })
	r.former = nil
	if len(former) > 0 { // beside the rest: one that is gone must not hold the cluster up
		workflow.GoNamed(ctx, "tell former hubs", func(ctx workflow.Context) {
			r.telling++
			onEachHub(ctx, former, contract.DirectActivity, "tell former hub ", directive)
			r.telling--
		})
	}
	onEachHub(ctx, hubs, contract.DirectActivity, "tell hub ", directive)
	r.heard = directive.Version
}

// tellRelease hands a person's word on the brake to every hub.
func (r *clusterRun) tellRelease(ctx workflow.Context) {
	request := r.release[0]
	r.release = r.release[1:]
	onEachHub(ctx, r.state.Hubs(), contract.ReleaseBrakeActivity, "release the brake at hub ", request)
}

func onEachHub[In any](
	ctx workflow.Context, hubs []string, activity contract.Activity[In, contract.None], summary string, argument In,
) {
	var futures []contract.Future[contract.None]
	for _, hub := range hubs {
		hubCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue:              contract.HubQueue(hub),
			ScheduleToCloseTimeout: directTimeout,
			RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 3},
			Summary:                summary + hub,
		})
		futures = append(futures, activity.Execute(hubCtx, argument))
	}
	for _, f := range futures {
		if _, err := f.Get(ctx); err != nil {
			workflow.GetLogger(ctx).Warn("A hub was not told of a change; it hears at its next join", "error", err)
		}
	}
}

func (r *clusterRun) directive() contract.Directive {
	s := &r.state
	paused, lanes := s.Pauses.Lanes()
	return contract.Directive{
		Cluster: s.Config.Name, CreatedAt: r.created, Version: s.Version, Mode: s.Config.ReplicationMode, CapabilitySets: s.CapabilitySets,
		Leader: s.Leader, LeaderEpoch: s.LeaderEpoch, Standbys: s.Standbys, Shards: s.Shards,
		RoleLease: s.Config.RoleLease, ElectionInterval: s.Config.ElectionInterval, Brake: s.Config.Brake, Fences: fences(s.Members), Cordoned: cordoned(s.Cordons), Slots: s.Reductions.Limits(), Targets: s.Targets,
		Paused: paused, PausedLanes: lanes, EndedTokens: s.EndedTokens(),
	}
}

func (r *clusterRun) view() contract.ClusterView {
	return contract.ClusterView{Cluster: r.state, CreatedAt: r.created}
}
