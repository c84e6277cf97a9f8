package workflows

import (
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

// Cluster is the single writer of a cluster's membership, epochs and lane ownership. It lives until the cluster is
// deleted.
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
	told    int64 // the directive version that all hubs were told
}

func newClusterRun(ctx workflow.Context, in contract.ClusterInput) (*clusterRun, error) {
	r := &clusterRun{created: workflow.GetInfo(ctx).WorkflowStartTime}
	if in.State != nil {
		r.state, r.created = *in.State, in.CreatedAt
	}
	r.state.Config = in.Config.WithDefaults()
	r.told = r.state.Version
	if err := workflow.SetQueryHandler(ctx, contract.ViewQuery, func() (contract.ClusterView, error) { return r.view(), nil }); err != nil {
		return nil, err
	}
	return r, r.setUpdateHandlers(ctx)
}

// loop takes signals and tells hubs of changes until the cluster is deleted or the history is long enough.
func (r *clusterRun) loop(ctx workflow.Context) error {
	changed := workflow.GetSignalChannel(ctx, contract.MembersChangedSignal)
	hubLost := workflow.GetSignalChannel(ctx, contract.HubLostSignal)
	for {
		var members contract.MembersChanged
		for changed.ReceiveAsync(&members) {
			r.membersChanged(members)
			members = contract.MembersChanged{}
		}
		var lost contract.HubLost
		for hubLost.ReceiveAsync(&lost) {
			r.state.LoseHub(lost.Hub, workflow.Now(ctx))
			lost = contract.HubLost{}
		}
		if r.told != r.state.Version {
			r.tellHubs(ctx)
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if r.deleted && workflow.AllHandlersFinished(ctx) {
			return nil
		}
		if r.longEnough(ctx) && workflow.AllHandlersFinished(ctx) {
			return workflow.NewContinueAsNewError(ctx, contract.ClusterWorkflow,
				contract.ClusterInput{Config: r.state.Config, State: &r.state, CreatedAt: r.created})
		}
		_ = workflow.Await(ctx, func() bool {
			return changed.Len() > 0 || hubLost.Len() > 0 || r.told != r.state.Version || r.deleted || r.longEnough(ctx)
		})
	}
}

func (r *clusterRun) longEnough(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() > clusterEvents
}

func (r *clusterRun) membersChanged(m contract.MembersChanged) {
	for _, t := range m.Changes {
		r.state.Apply(t, m.Hub)
	}
}

// tellHubs hands the directive to every hub that serves members. A hub that does not answer hears at its next join.
func (r *clusterRun) tellHubs(ctx workflow.Context) {
	directive := r.directive()
	r.told = directive.Version
	var futures []workflow.Future
	for _, hub := range r.state.Hubs() {
		hubCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue:              contract.HubQueue(hub),
			ScheduleToCloseTimeout: directTimeout,
			RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 3},
			Summary:                "tell hub " + hub,
		})
		futures = append(futures, workflow.ExecuteActivity(hubCtx, contract.DirectActivity, directive))
	}
	for _, f := range futures {
		if err := f.Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Warn("A hub was not told of a change; it hears at its next join", "error", err)
		}
	}
}

func (r *clusterRun) directive() contract.Directive {
	return contract.Directive{
		Cluster: r.state.Config.Name, Version: r.state.Version,
		Mode: r.state.Config.ReplicationMode, CapabilitySets: r.state.CapabilitySets,
	}
}

func (r *clusterRun) view() contract.ClusterView {
	return contract.ClusterView{Cluster: r.state, CreatedAt: r.created}
}
