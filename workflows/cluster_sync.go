package workflows

import (
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// syncBound bounds a state sync.
const syncBound = 5 * time.Minute

// takeStates takes what hubs say of their agents' states.
func (r *clusterRun) takeStates(ctx workflow.Context) {
	r.states.Take(func(told contract.StatesChanged) {
		if r.state.SetStateDigests(told.Hub, told.Digests, workflow.Now(ctx)) {
			r.syncSoon(ctx)
		}
	})
}

// syncSoon brings the next sync forward. Runs that began without it wait as long as before.
func (r *clusterRun) syncSoon(ctx workflow.Context) {
	if workflow.GetVersion(ctx, "sync-soon", workflow.DefaultVersion, 1) != workflow.DefaultVersion {
		r.state.SyncSoon(workflow.Now(ctx))
	}
}

// syncStates starts a state sync when the members' states differ. While one is under way it tries again soon.
func (r *clusterRun) syncStates(ctx workflow.Context) {
	now := workflow.Now(ctx)
	r.state.DropStateDigests(now)
	if !r.state.SyncDue(now) {
		return
	}
	child := startSync(ctx, contract.SyncInput{Cluster: r.state.Config.Name, Reason: "the members' states differ"})
	if err := child.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Info("A state sync was not started; one is under way", "error", err)
		r.syncSoon(ctx) // that one may have read the states before they changed
		return
	}
	r.followSync(ctx, child)
}

// startSync starts a state sync that outlives its parent.
func startSync(ctx workflow.Context, in contract.SyncInput) workflow.ChildWorkflowFuture {
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:               contract.SyncWorkflowID(in.Cluster),
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowExecutionTimeout: syncBound,
		ParentClosePolicy:        enumspb.PARENT_CLOSE_POLICY_ABANDON,
		TypedSearchAttributes:    temporal.NewSearchAttributes(contract.AttrCluster.ValueSet(in.Cluster)),
		StaticSummary:            "state sync: " + in.Reason,
	})
	return workflow.ExecuteChildWorkflow(ctx, contract.StateSyncWorkflow, in)
}

// syncAfter has a promoted agent brought up to date, and tells how the cluster's states stand then.
func syncAfter(ctx workflow.Context, in contract.FailoverInput, record *fleet.FailoverRecord) {
	if !in.StateKept || record.Promoted == "" {
		return
	}
	child := startSync(ctx, contract.SyncInput{Cluster: in.Cluster, Reason: record.Promoted + " was promoted"})
	var report fleet.SyncReport
	if err := child.Get(ctx, &report); err != nil {
		workflow.GetLogger(ctx).Info("No state sync of this failover's own; one is under way", "error", err)
		return
	}
	record.StateSync = report.Status
}
