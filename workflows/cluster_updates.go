package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// setUpdateHandlers takes what hubs and operators ask of a cluster. Each changes the state in one atomic step.
func (r *clusterRun) setUpdateHandlers(ctx workflow.Context) error {
	if err := r.setPauseHandlers(ctx); err != nil {
		return err
	}
	if err := contract.RevokeJoinTokenUpdate.Handle(ctx, r.revokeToken, nil); err != nil {
		return err
	}
	if err := contract.JoinUpdate.Handle(ctx, r.join, func(contract.JoinRequest) error { return r.refuseDeleted() }); err != nil {
		return err
	}
	if err := contract.OpenLaneUpdate.Handle(ctx, contract.NoAnswer(r.openLane), func(contract.OpenLaneRequest) error { return r.refuseDeleted() }); err != nil {
		return err
	}
	if err := contract.ConfigureUpdate.Handle(ctx, r.configure, r.validateConfig); err != nil {
		return err
	}
	if err := contract.ReleaseBrakeUpdate.Handle(ctx, contract.NoAnswer(func(_ workflow.Context, req contract.ReleaseBrakeRequest) error {
		req.Cluster = r.state.Config.Name
		r.release = append(r.release, req)
		return nil
	}), func(contract.ReleaseBrakeRequest) error { return r.refuseDeleted() }); err != nil {
		return err
	}
	if err := r.setScalingHandlers(ctx); err != nil {
		return err
	}
	if err := r.setCordonHandlers(ctx); err != nil {
		return err
	}
	if err := r.setLoadHandlers(ctx); err != nil {
		return err
	}
	return contract.DeleteUpdate.Handle(ctx, contract.NoAnswer(func(ctx workflow.Context, _ contract.DeleteRequest) error {
		r.deleted = true
		r.tell(workflow.Now(ctx), fleet.EventClusterDeleted, fleet.EventData{})
		return nil
	}), func(req contract.DeleteRequest) error {
		if err := r.refuseOutdated(req.IfRevisions); err != nil {
			return err
		}
		if n := r.state.ServingCount(); n > 0 && !req.Force {
			return refuse("the cluster still has %d online agents: stop them first, or force", n)
		}
		return r.refuseDeleted()
	})
}

func (r *clusterRun) join(ctx workflow.Context, req contract.JoinRequest) (contract.JoinResponse, error) {
	now := workflow.Now(ctx)
	r.state.HubProcess(req.Hub, req.HubProcess, now)
	answer := contract.JoinResponse{Results: make([]fleet.Joined, 0, len(req.Joins))}
	for _, j := range req.Joins {
		joined := r.state.Join(j, req.Hub, now)
		if joined.Replaced != "" {
			r.state.Version++ // other hubs must end the replaced process's session
			if joined.ReplacedHub != "" {
				r.former = append(r.former, joined.ReplacedHub)
			}
		}
		answer.Results = append(answer.Results, joined)
	}
	r.note(ctx)
	r.joined = true
	answer.Directive = r.directive()
	return answer, nil
}

func (r *clusterRun) openLane(_ workflow.Context, req contract.OpenLaneRequest) error {
	changed, ok := r.state.OpenLane(req.Capabilities)
	if !ok {
		return refuse("the cluster's tasks already name %d different sets of capabilities", fleet.MaxCapabilitySets)
	}
	if changed {
		r.state.Version++
	}
	return nil
}

func (r *clusterRun) validateConfig(request contract.ConfigureRequest) error {
	if err := r.refuseDeleted(); err != nil {
		return err
	}
	if err := r.refuseOutdated(request.IfRevisions); err != nil {
		return err
	}
	next := request.WithDefaults()
	if err := next.Validate(); err != nil {
		return refuse("%s", err)
	}
	current := r.state.Config
	if next.Name != current.Name {
		return refuse("a cluster cannot be renamed")
	}
	if next.Shards != current.Shards || (next.ReplicationMode == fleet.Sharded) != (current.ReplicationMode == fleet.Sharded) {
		return refuse("the number of shards and whether a cluster is sharded are fixed when it is created")
	}
	return nil
}

func (r *clusterRun) configure(ctx workflow.Context, request contract.ConfigureRequest) (contract.ClusterView, error) {
	next := request.WithDefaults()
	r.state.SwitchMode(next.ReplicationMode, max(next.RoleLease.Std(), r.state.Config.RoleLease.Std()), workflow.Now(ctx))
	r.state.Reconfigure(next)
	r.scaling.look = true
	if err := workflow.UpsertMemo(ctx, map[string]any{contract.MemoConfig: next}); err != nil {
		workflow.GetLogger(ctx).Warn("The memo was not set", "error", err)
	}
	r.state.Version++
	r.joined = true
	return r.view(), nil
}

func (r *clusterRun) refuseDeleted() error {
	if r.deleted {
		return refuse("the cluster is being deleted")
	}
	return nil
}

// refuseOutdated refuses what was meant for another configuration than the present one.
func (r *clusterRun) refuseOutdated(revisions []string) error {
	if r.state.Config.RevisionIs(revisions) {
		return nil
	}
	return temporal.NewNonRetryableApplicationError("the cluster's settings were changed meanwhile", contract.Outdated, nil)
}
