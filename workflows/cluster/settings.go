package cluster

import (
	"errors"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/scaling"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// settings changes a cluster's configuration, and deletes the cluster.
type settings struct {
	quiet
	run *run
}

func (s settings) handle(ctx workflow.Context) error {
	return errors.Join(
		handle(ctx, s.run, contract.ConfigureUpdate, s.configure, s.validate),
		handle(ctx, s.run, contract.DeleteUpdate, contract.NoAnswer(s.remove), s.mayRemove))
}

func (s settings) remove(ctx workflow.Context, _ contract.DeleteRequest) error {
	s.run.deleted = true
	s.run.events.publish(workflow.Now(ctx), api.EventClusterDeleted, api.EventData{})
	return nil
}

func (s settings) mayRemove(req contract.DeleteRequest) error {
	if err := s.refuseOutdated(req.IfRevisions); err != nil {
		return err
	}
	if n := s.run.state.ServingCount(); n > 0 && !req.Force {
		return workflows.Refuse("the cluster still has %d online agents: stop them first, or force", n)
	}
	return nil
}

func (s settings) validate(request contract.ConfigureRequest) error {
	if err := s.refuseOutdated(request.IfRevisions); err != nil {
		return err
	}
	next := request.WithDefaults()
	if err := next.Validate(); err != nil {
		return workflows.Refuse("%s", err)
	}
	current := s.run.state.Config
	if next.Name != current.Name {
		return workflows.Refuse("a cluster cannot be renamed")
	}
	if next.Shards != current.Shards ||
		(next.ReplicationMode == api.Sharded) != (current.ReplicationMode == api.Sharded) {
		return workflows.Refuse("the number of shards and whether a cluster is sharded are fixed when it is created")
	}
	return nil
}

func (s settings) configure(ctx workflow.Context, request contract.ConfigureRequest) (contract.Done, error) {
	r, next := s.run, request.ClusterConfig.WithDefaults()
	r.state.SwitchMode(next.ReplicationMode, max(next.RoleLease.Std(), r.state.Config.RoleLease.Std()),
		workflow.Now(ctx))
	former, tenants := r.state.Config.Scaling.Spawn, r.state.Config.Tenants
	scaling.Reconfigure(&r.state, next)
	scaling.RollOut(&r.state, former, workflow.Now(ctx))
	r.scaling.look = true
	r.note(ctx)
	if !slices.Equal(tenants, next.Tenants) {
		r.hubs.awaitFollowed(ctx, "who may use the cluster")
	}
	return contract.Done{}, nil
}

// note makes the settings readable without asking the workflow.
func (r *run) note(ctx workflow.Context) {
	if err := workflow.UpsertMemo(ctx, map[string]any{contract.MemoConfig: r.state.Config}); err != nil {
		workflow.GetLogger(ctx).Warn("The memo was not set", "error", err)
	}
}

// refuseOutdated refuses a change that was made for other settings than the present ones.
func (s settings) refuseOutdated(revisions []string) error {
	if s.run.state.Config.RevisionIs(revisions) {
		return nil
	}
	return temporal.NewNonRetryableApplicationError("the cluster's settings were changed meanwhile", contract.Outdated,
		nil)
}
