package workflows

import (
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// failover queues the failover of a member.
func (r *clusterRun) failover(failed fleet.Member, in contract.FailoverInput) {
	in.Cluster, in.FailedAgent, in.Instance, in.Epoch, in.Hub = r.state.Config.Name, failed.AgentID, failed.Instance, failed.Epoch, failed.Hub
	if r.targets != nil && in.Targets == nil {
		in.Targets = r.targets
	}
	r.targets = nil
	in.Timeout, in.StateKept = r.state.Config.TransferTimeout, len(r.state.StateDigests) > 0 && r.state.Config.ReplicationMode != fleet.ActiveActive
	r.queue = append(r.queue, in)
}

// selectTarget picks who takes over, by the cluster's strategy.
func (r *clusterRun) selectTarget(failed string, loads map[string]int) string {
	target, found := fleet.SelectTarget(r.state.Config.Selection, r.state.Members, r.state.RoleOf, loads,
		fleet.FailoverNeed{FailedAgent: failed, RoundRobin: r.state.RoundRobin})
	if found && r.state.Config.Selection == fleet.SelectRoundRobin {
		r.state.RoundRobin++
	}
	return target
}

// manualFailover takes a person's request. What cannot be done is recorded as a failover that says why; nothing that a
// person sends can hurt the cluster.
func (r *clusterRun) manualFailover(ctx workflow.Context, request contract.ManualFailover) {
	reason := request.Reason
	if reason == "" {
		reason = "asked for by hand"
	}
	in := contract.FailoverInput{Trigger: fleet.TriggerManual, Reason: reason, NoticedAt: workflow.Now(ctx)}
	if fleet.ValidateID("agent_id", request.AgentID) != nil {
		workflow.GetLogger(ctx).Warn("A manual-failover signal names no agent; it is ignored")
		return
	}
	member := r.state.Member(request.AgentID)
	if member == nil {
		in.NotInCluster = true
		r.failover(fleet.Member{AgentID: request.AgentID}, in)
		return
	}
	if err := r.refuseHealing(request.AgentID, "", request.Healing); err != nil {
		workflow.GetLogger(ctx).Info("A failover that healing asked for is refused", "agent", request.AgentID, "error", err)
		return
	}
	if !member.Serving() {
		workflow.GetLogger(ctx).Warn("A manual-failover signal names an agent that is offline; its work has moved already")
		return
	}
	if target := r.state.Member(request.TargetAgentID); target != nil && target.Status == fleet.AgentOnline && target.AgentID != member.AgentID {
		in.Target = target.AgentID
	}
	in.WasLeader, in.Shards, in.Targets = r.state.Leader == member.AgentID, r.state.ShardsOf(member.AgentID), r.state.TargetsOf(member.AgentID)
	r.failover(*member, in)
}

// takeEvacuated moves an agent's roles after a failover by hand has stopped its work: nothing needs to wait for a lease.
func (r *clusterRun) takeEvacuated(ctx workflow.Context, done contract.Evacuated) {
	now := workflow.Now(ctx)
	member := r.state.Member(done.AgentID)
	if member == nil || member.Epoch != done.Epoch {
		return
	}
	r.vacate(done.AgentID, 0, now)
	if done.Target != "" {
		if _, promoted := r.state.Promote(done.Target, now); promoted {
			r.state.Version++
		}
	}
	r.joined = true
}

// startFailovers starts the queued failovers as children that outlive this run. One that is under way already for the
// same session is not started twice.
func (r *clusterRun) startFailovers(ctx workflow.Context) {
	queue := r.queue
	r.queue = nil
	loads := r.loads(ctx)
	var started []workflow.ChildWorkflowFuture
	for i := range queue {
		in := &queue[i]
		if in.Target == "" && !in.NotInCluster {
			in.Target = r.selectTarget(in.FailedAgent, loads)
		}
		childCtx := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID:            contract.FailoverWorkflowID(in.Cluster, in.FailedAgent, in.Epoch),
			WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
			ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
			TypedSearchAttributes: temporal.NewSearchAttributes(
				contract.AttrCluster.ValueSet(in.Cluster), contract.AttrAgent.ValueSet(in.FailedAgent)),
			StaticSummary: "failover of " + in.FailedAgent + ": " + in.Reason,
		})
		started = append(started, workflow.ExecuteChildWorkflow(childCtx, contract.FailoverWorkflow, *in))
	}
	for i, child := range started {
		if err := child.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Warn("A failover was not started; one for the same session is under way", "error", err)
			continue
		}
		r.followFailover(ctx, queue[i], child)
	}
}
