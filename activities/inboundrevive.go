package activities

import (
	"context"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// TellEvent reports to an event from outside the outcome of something that it started. A death reopens the event's
// workflow, if that has closed, under its id, so that repetitions of the event find it. An event that is gone, or that
// a person gave up, gets no report.
func (a *Control) TellEvent(ctx context.Context, told contract.EventOutcome) error {
	if err := sameTenant(told.Event, told.ID); err != nil {
		return err
	}
	s, workflowID := a.store(), contract.InboundWorkflowID(told.Event)
	info, err := s.Describe(ctx, workflowID)
	if store.KindOf(err) == store.NotFound {
		return nil
	} else if err != nil {
		return err
	}
	if info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return contract.OutcomeSignal.Send(ctx, a.Client, workflowID, told)
	}
	before, digest, record := info.GetExecution().GetRunId(), "", api.InboundEvent{}
	end, err := s.End(ctx, workflowID, before)
	if err != nil || told.Died == "" || !end.Read(&record) || record.Status == api.InboundDiscarded {
		return err
	}
	contract.Decode(info.GetMemo().GetFields()[contract.MemoDigest], &digest)
	event, err := s.Envelope(ctx, told.Event)
	if err != nil {
		return err
	}
	start := contract.StartOfInbound(told.Event, &event, digest)
	options := start.Options()
	options.WorkflowIDReusePolicy = enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
	options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
	options.EnableEagerStart = false
	_, err = a.Client.SignalWithStartWorkflow(ctx, workflowID, contract.OutcomeSignal.Name, told, options,
		contract.InboundWorkflow, contract.InboundInput{Event: event, Carried: &record, Before: before})
	return err
}

// sameTenant checks that an event and what it has started are of one tenant.
func sameTenant(event, id string) error {
	tenant, _ := api.CutTenant(event)
	own, _ := api.CutTenant(id)
	if err := mesh.AssertTenant(tenant, own); err != nil {
		return temporal.NewNonRetryableApplicationError(err.Error(), "tenant_mismatch", nil)
	}
	return nil
}

// ForgetRun removes a closed run of a workflow. Temporal may take a minute for one that has closed a moment before.
func (a *Control) ForgetRun(ctx context.Context, in contract.ForgetRun) error {
	_, err := a.Client.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
		Namespace:         a.Namespace,
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: in.WorkflowID, RunId: in.RunID}})
	if store.KindOf(err) == store.NotFound {
		return nil
	}
	return err
}

// Revive starts dead work again: a dead letter in its task, an ended task under its id, and a run as one that repeats
// what had not succeeded. Work that is alive again stays as it is. With Discard, it gives dead letters up.
func (a *Control) Revive(ctx context.Context, in contract.Revive) (answer contract.EventDispatched, err error) {
	for _, d := range in.Dead {
		revive := a.reviveTask
		if d.Kind == api.DispatchRun {
			revive = a.reviveRun
		}
		cluster, err := "", sameTenant(in.Event, d.ID)
		if err == nil {
			cluster, err = revive(ctx, &in, &d)
		}
		if err != nil && answer.Problem == "" {
			answer.Problem, answer.Cluster = api.Shorten(d.ID+": "+err.Error(), mesh.MaxProblem), cluster
		}
		if err == nil {
			answer.Dispatches = append(answer.Dispatches, d)
		}
	}
	return answer, nil
}

func (a *Control) reviveTask(ctx context.Context, in *contract.Revive, d *api.Dispatch) (cluster string, err error) {
	tasks := a.tasks()
	task, err := tasks.Describe(ctx, d.ID)
	if err != nil {
		return "", err
	}
	by := contract.ForTask{By: in.By}
	switch {
	case in.Discard && task.Status == api.TaskDeadLetter:
		_, err = contract.DiscardUpdate.Send(ctx, a.Client, task.WorkflowID, contract.DiscardRequest{ForTask: by,
			Reason: "its event was discarded: " + in.Reason})
	case in.Discard:
	case task.Status == api.TaskDeadLetter:
		_, err = contract.RetryUpdate.Send(ctx, a.Client, task.WorkflowID, contract.RetryRequest{ForTask: by,
			Reason: "its event was replayed: " + in.Reason})
	case task.Status == api.TaskFailed || task.Status == api.TaskExpired:
		weight := 0.0
		if weight, err = a.weight(ctx, task.Cluster, task.Tenant); err == nil {
			err = tasks.StartAgain(ctx, &task, weight)
		}
	}
	return task.Cluster, err
}

func (a *Control) reviveRun(ctx context.Context, in *contract.Revive, d *api.Dispatch) (cluster string, err error) {
	runs := a.store().Runs()
	run, _, err := runs.Describe(ctx, d.ID)
	if err != nil || in.Discard || run.Status != api.RunFailed {
		return run.Cluster, err
	}
	known, err := runs.Complete(ctx, &run)
	if err == nil && !known {
		err = errors.New("it has left no ledger, so it is not known what succeeded: dispatch the job again")
	}
	if err != nil {
		return run.Cluster, err
	}
	first, err := runs.Input(ctx, &run)
	if err != nil {
		return run.Cluster, err
	}
	weight, err := a.weight(ctx, run.Cluster, run.Tenant)
	if err != nil {
		return run.Cluster, err
	}
	id := contract.RetryRunID(first.Plan.Job, run.ID, "")
	err = runs.Start(ctx, id, "", &contract.RunInput{Plan: first.Plan, Inputs: first.Inputs, Done: (*job.Ledger)(&run.Ledger),
		Origin: api.RunOrigin{By: in.By, RetryOf: run.ID, Event: in.Event}}, weight)
	next := api.Dispatch{Kind: d.Kind, ID: id, Job: d.Job, Key: mesh.DispatchKey(in.EventID, id), Outcome: d.Outcome,
		RetryOf: d.ID}
	if store.KindOf(err) == store.Exists { // a person had it retried, and it may have failed since
		_, err = a.reviveRun(ctx, in, &next)
		next.RetryOf = d.ID
	}
	*d = next
	return run.Cluster, err
}

// weight is that of a tenant in a cluster.
func (a *Control) weight(ctx context.Context, cluster, tenant string) (float64, error) {
	view, err := a.view(ctx, cluster)
	if store.KindOf(err) == store.NotFound {
		err = fmt.Errorf("there is no cluster %s", cluster)
	}
	return view.Config.TenantWeights[tenant], err
}
