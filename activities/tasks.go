package activities

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	activitypb "go.temporal.io/api/activity/v1"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// IsMadeBy reports whether a task is one that a schedule made, of the same kind and payload: a schedule may have been
// deleted and another made under its name.
func (a *Control) IsMadeBy(ctx context.Context, in contract.IsMadeByInput) (bool, error) {
	task, err := a.tasks().Describe(ctx, in.TaskID)
	if err != nil {
		return false, fmt.Errorf("describe task %s: %w", in.TaskID, err)
	}
	if !task.MadeBy(in.Schedule) {
		return false, nil
	}
	made, err := a.tasks().Submitted(ctx, &task.Task)
	if err != nil || made == nil {
		return false, err
	}
	return made.Type == in.Spec.Type && bytes.Equal(made.Payload, in.Spec.Payload), nil
}

// PlaceTask asks the cluster as it is now for a task's lane, and opens that lane if nobody polls it yet. A cluster that
// is not there, or is for other tenants, fails with contract.UnknownCluster.
func (a *Control) PlaceTask(ctx context.Context, in contract.PlaceTaskInput) (contract.TaskPlace, error) {
	view, err := a.view(ctx, in.Cluster)
	if store.KindOf(err) == store.NotFound || err == nil && !view.Config.IsFor(in.Tenant) {
		return contract.TaskPlace{}, temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("there is no cluster %s any more, so no task was made",
				in.Cluster), contract.UnknownCluster, nil)
	}
	if err != nil {
		return contract.TaskPlace{}, err
	}
	spec := api.TaskSpec{Type: in.Type, Cluster: in.Cluster, Tenant: in.Tenant, Agent: in.Agent,
		RequiredCapabilities: in.RequiredCapabilities, Place: in.Place, Routes: in.Routes}
	return a.placeIn(ctx, &view, spec, in.ShardKey)
}

// placeIn is where a tenant's task goes in a cluster; its lanes are open afterwards. Work for too many agents that the
// cluster does not know is Refused.
func (a *Control) placeIn(
	ctx context.Context, view *contract.ClusterView, spec api.TaskSpec, id string,
) (place contract.TaskPlace, err error) {
	if err := a.pins.Admit(ctx, &spec, func(context.Context, string) (contract.ClusterView, error) {
		return *view, nil
	}); err != nil {
		return place, err
	}
	return a.openPlace(ctx, view, spec, id)
}

// openPlace is where a task goes in a cluster; its lanes are open afterwards.
func (a *Control) openPlace(
	ctx context.Context, view *contract.ClusterView, spec api.TaskSpec, id string,
) (contract.TaskPlace, error) {
	place := contract.PlaceOf(&view.Config, view.LaneTypes(), spec, id)
	if !place.Opens() {
		return place, nil
	}
	for _, needs := range task.LaneNeedsOf(&spec, place.OwnType()) {
		if err := a.clusters().OpenLane(ctx, view, needs, spec.Tenant); err != nil {
			if place.OwnType() && store.KindOf(err) == store.Refused {
				view.TypeLanes = cluster.TypeLanes{} // there is no lane more for a type
				return a.openPlace(ctx, view, spec, id)
			}
			return place, fmt.Errorf("open a lane in cluster %s: %w", spec.Cluster, err)
		}
	}
	return place, nil
}

// UsedLanes finds the lanes that tasks use.
func (a *Control) UsedLanes(ctx context.Context, in contract.UsedLanesInput) ([]string, error) {
	return a.clusters().UsedLanes(ctx, in.Cluster, in.Lanes, in.Since)
}

// Reprioritize changes the priority of a delivery that waits in its lane: Temporal queues it again. One that an agent
// has is not disturbed, and one that is over is left alone. Fairness key and weight stay: what an activity does not say
// of its priority is the workflow's. It takes Temporal up to about a second, as it does so with a timer.
func (a *Control) Reprioritize(ctx context.Context, in contract.ReprioritizeInput) error {
	_, err := a.Client.WorkflowService().UpdateActivityOptions(ctx, &workflowservice.UpdateActivityOptionsRequest{
		Namespace:       a.Namespace,
		Execution:       &commonpb.WorkflowExecution{WorkflowId: in.WorkflowID, RunId: in.RunID},
		Activity:        &workflowservice.UpdateActivityOptionsRequest_Id{Id: in.ActivityID},
		ActivityOptions: &activitypb.ActivityOptions{Priority: &commonpb.Priority{PriorityKey: int32(in.Priority)}},
		UpdateMask:      &fieldmaskpb.FieldMask{Paths: []string{"priority.priority_key"}},
	})
	var over *serviceerror.NotFound
	var refused *serviceerror.InvalidArgument
	var tooOld *serviceerror.Unimplemented
	switch {
	case err == nil, errors.As(err, &over):
		return nil
	case errors.As(err, &refused), errors.As(err, &tooOld):
		return temporal.NewNonRetryableApplicationError(
			"Temporal does not change the priority of what waits; it holds for later deliveries", "NotChanged", err)
	}
	return fmt.Errorf("change the priority of %s of %s: %w", in.ActivityID, in.WorkflowID, err)
}
