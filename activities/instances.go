package activities

import (
	"context"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// instancesAtOnce bounds the instances that are looked at, started or stopped side by side.
const instancesAtOnce = 16

// LookAtInstances reads which agents may have an instance of a job, and which of its instances have ended. The cluster
// notifies the job of later changes.
func (a *Control) LookAtInstances(
	ctx context.Context, in contract.LookAtInstances,
) (seen contract.InstancesSeen, err error) {
	cluster := in.Definition.Cluster
	if in.Definition.OnEachAgent() {
		// before the view, so that no change is missed
		err = contract.WatchMembersSignal.Send(ctx, a.Client, contract.ClusterWorkflowID(cluster), in.Job)
		if err != nil && store.KindOf(err) != store.NotFound {
			return seen, fmt.Errorf("watch cluster %s: %w", cluster, err)
		}
		view, err := a.view(ctx, cluster)
		if err != nil {
			return seen, err
		}
		seen.Agents = job.AgentsFor(&view.Cluster, in.Definition)
	}
	if required := in.Definition.Required(); len(required) > 0 {
		seen.Missing, err = a.looks.unmet(ctx, in.Definition.Tenant, required, func() ([]string, error) {
			return a.store().Jobs().Unmet(ctx, in.Definition.Tenant, required)
		})
		if err != nil {
			return seen, err
		}
	}
	ended := make([]bool, len(in.Tasks))
	parallel.Each(len(in.Tasks), instancesAtOnce, func(i int) {
		info, err := a.store().Describe(ctx, contract.TaskWorkflowID(in.Tasks[i]))
		ended[i] = store.KindOf(err) == store.NotFound ||
			err == nil && info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	})
	for i, task := range in.Tasks {
		if ended[i] {
			seen.Ended = append(seen.Ended, task)
		}
	}
	return seen, ctx.Err()
}

// ChangeInstances starts and stops instances, and answers the tasks that were to be stopped and do not exist.
func (a *Control) ChangeInstances(ctx context.Context, in contract.ChangeInstances) ([]string, error) {
	start, stop := in.Change.Start, in.Change.Stop
	errs, gone := make([]error, len(start)+len(stop)), make([]bool, len(stop))
	if len(start) > 0 {
		view, err := a.view(ctx, in.Definition.Cluster)
		if err != nil {
			return nil, err
		}
		parallel.Each(len(start), instancesAtOnce, func(i int) {
			errs[i] = a.startInstance(ctx, &view, &in, &start[i])
		})
	}
	parallel.Each(len(stop), instancesAtOnce, func(i int) {
		_, err := store.Update(ctx, a.store(), contract.CancelUpdate, contract.TaskWorkflowID(stop[i].TaskID),
			contract.CancelRequest{Reason: stop[i].Stopping})
		switch store.KindOf(err) {
		case store.NotFound:
			gone[i] = true
		case store.Refused: // it has ended or is being stopped
		default:
			errs[len(start)+i] = err
		}
	})
	var tasks []string
	for i := range gone {
		if gone[i] {
			tasks = append(tasks, stop[i].TaskID)
		}
	}
	for _, err := range errs {
		if err != nil {
			return tasks, fmt.Errorf("start and stop instances of job %s: %w", in.Job, err)
		}
	}
	return tasks, nil
}

func (a *Control) startInstance(
	ctx context.Context, view *contract.ClusterView, in *contract.ChangeInstances, i *api.Instance,
) error {
	d := in.Definition
	for n := range in.Others {
		if in.Others[n].Version == i.Version {
			d = in.Others[n].Definition
		}
	}
	spec := job.TaskOf(d, i)
	place, err := a.openPlace(ctx, view, spec, i.TaskID)
	if err != nil {
		return err
	}
	task := store.Submission{TaskInput: place.Input(i.TaskID, spec), Weight: place.TenantWeight}
	task.Instance = &api.InstanceOf{Job: in.Job, Name: i.Name, Version: i.Version, Kind: string(d.Type),
		Service: d.Instances.Service, Health: d.Instances.Health, Canary: i.Canary}
	if stop := d.Instances.Stop; stop != nil {
		task.Instance.StopGrace = stop.Grace
	}
	if away := d.Instances.Disconnect; away != nil {
		task.Instance.DisconnectGrace = away.Grace
	}
	if _, err := a.tasks().Start(ctx, &task); err != nil && store.KindOf(err) != store.Exists {
		return fmt.Errorf("start instance %s: %w", i.Name, err)
	}
	return nil
}
