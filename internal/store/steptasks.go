package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// describeStep is the task of a step of a run, or of one of its elements, with all that is known of it: from the run's
// ledger, from its delivery, and what was submitted from the run's plan.
func (s Tasks) describeStep(ctx context.Context, id, workflowID, key string) (Task, error) {
	d, err := s.Client.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return Task{}, err
	}
	runID, stepID, element, _ := job.CutTaskID(id)
	info := d.GetWorkflowExecutionInfo()
	e := OfRunInfo(info)
	run := api.Run{ID: runID, WorkflowID: workflowID, WorkflowRunID: info.GetExecution().GetRunId()}
	run.Status = e.Status
	t := Task{whole: true, HistoryBytes: info.GetHistorySizeBytes(), Task: api.Task{ID: id, Cluster: e.Cluster,
		Tenant: e.Tenant, WorkflowID: workflowID, RunID: run.WorkflowRunID, Status: api.TaskQueued}}
	if info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		t.Delivery = deliveryOf(d.GetPendingActivities(), key)
	}
	input, err := s.Runs().Input(ctx, &run)
	if err != nil {
		return Task{}, err
	}
	known, err := s.Runs().Complete(ctx, &run)
	work := workOf((*job.Ledger)(&run.Ledger), stepID, element)
	spec := plannedSpec(&input.Plan, stepID, element, work)
	if spec != nil && dynamic(spec) {
		t.WorkflowID, t.RunID = workflowID, run.WorkflowRunID
		delivered, err := s.firstDelivery(ctx, &t.Task, key)
		if err != nil {
			return Task{}, err
		}
		spec = cmp.Or(delivered, spec)
	}
	if spec == nil {
		return Task{}, errNoTask
	}
	t.Type, t.Agent, t.RequiredCapabilities = spec.Type, spec.Agent, task.CapabilitiesOf(spec)
	t.Labels, t.Safety, t.Recovery = spec.Labels, spec.RetrySafety, spec.EffectiveRecovery()
	t.Place = spec.Place
	t.setPriority(spec.Priority)
	switch {
	case err != nil:
		return Task{}, err
	case !known:
		t.Why = run.Why
	case work == nil:
		return Task{}, errNoTask
	default:
		t.takeWork(work)
	}
	if !run.Status.Final() {
		state, err := contract.StepTaskQuery.Ask(ctx, s.Client, workflowID, key)
		if err == nil && state.Status != "" {
			t.takeState(&state)
			if state.Status == api.TaskQueued {
				t.TakeDelivery()
			}
		}
	}
	return t, nil
}

// stepSpec is what the task of a step was delivered with. Before its first delivery it is as the run's plan has it:
// with its expressions.
func (s Tasks) stepSpec(ctx context.Context, t *api.Task) (*api.TaskSpec, error) {
	_, key := contract.Locate(t.ID)
	if spec, err := s.firstDelivery(ctx, t, key); spec != nil || err != nil {
		return spec, err
	}
	input, err := s.Runs().Input(ctx, &api.Run{WorkflowID: t.WorkflowID, WorkflowRunID: t.RunID})
	if err != nil {
		return nil, err
	}
	_, step, element, _ := job.CutTaskID(t.ID)
	return plannedSpec(&input.Plan, step, element, nil), nil
}

// plannedSpec is the task of a step, or the one that checks its result, as the plan has it; nil for none. work is what
// the ledger knows of it, if that is known: a call of a tool says there which one it is.
func plannedSpec(p *job.Plan, id string, element int, work *api.StepWork) *api.TaskSpec {
	step := p.Step(id)
	switch {
	case step == nil:
		return nil
	case work != nil && work.Tool != "":
		return p.ToolTask(step, work.Tool)
	case element != job.OfCheck:
		return step.Task
	case step.Check == nil:
		return nil
	}
	return step.Check.Task
}

// dynamic reports whether an expression gives a task anything but its payload.
func dynamic(spec *api.TaskSpec) bool {
	bare := *spec
	bare.Payload = nil
	text, err := json.Marshal(&bare)
	return err == nil && bytes.Contains(text, []byte("${"))
}

var errNoTask = serviceerror.NewNotFound("the run has no such task")

// workOf is what a ledger knows of a step's task, or of that of one of its elements; nil for none.
func workOf(l *job.Ledger, step string, element int) *api.StepWork {
	e := l.Entry(step)
	switch {
	case e == nil:
		return nil
	case element == job.OfCheck && e.Verdict != nil:
		return e.Verdict
	case element == -1 && e.Counts == nil:
		return &e.StepWork
	case element >= 0 && element < len(e.Elements):
		return &e.Elements[element]
	}
	return nil
}

// takeWork puts in what the run's ledger says.
func (t *Task) takeWork(w *api.StepWork) {
	t.Why, t.Attempts, t.NextAttemptAt, t.CreatedAt, t.ClosedAt = w.Why, w.Attempts, w.NextAt, w.StartedAt, w.EndedAt
	t.Result, t.PolicyState, t.Status = w.Output, w.PolicyState, w.Status.Task()
}
