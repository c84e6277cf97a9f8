package store

import (
	"context"
	"slices"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// Runs are the runs of jobs of a namespace.
type Runs struct{ Store }

// Runs are the namespace's.
func (s Store) Runs() Runs { return Runs{s} }

// OfRunInfo reads a run's entry from Temporal's record of a workflow. Its id is empty if the workflow is no run.
func OfRunInfo(info *workflowpb.WorkflowExecutionInfo) api.RunEntry {
	id, _ := contract.RunOfWorkflowID(info.GetExecution().GetWorkflowId())
	attributes := info.GetSearchAttributes().GetIndexedFields()
	e := api.RunEntry{
		ID:        id,
		Cluster:   contract.Keyword(attributes, contract.AttrCluster),
		Tenant:    contract.Keyword(attributes, contract.AttrTenant),
		Status:    markedStatus(info.GetStatus(), api.RunStatus(contract.Keyword(attributes, contract.AttrStatus))),
		StartedAt: TimeOf(info.GetStartTime()),
		EndedAt:   TimeOf(info.GetCloseTime()),
	}
	e.Job = api.Qualify(e.Tenant, contract.Keyword(attributes, contract.AttrJob))
	contract.Decode(info.GetMemo().GetFields()[contract.MemoJobVersion], &e.JobVersion)
	return e
}

// markedStatus derives the status of a run, or of an array, from its workflow's, and from its mark where that says
// more. Both have the same words.
func markedStatus[S api.RunStatus | api.ArrayStatus](execution enumspb.WorkflowExecutionStatus, mark S) S {
	switch execution {
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		if api.RunStatus(mark) == api.RunPartial {
			return mark
		}
		return S(api.RunCompleted)
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return S(api.RunCancelled)
	case enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return S(api.RunFailed)
	}
	switch api.RunStatus(mark) {
	case "":
		return S(api.RunRunning)
	case contract.RunWaiting:
		return S(api.RunBlocked)
	}
	return mark
}

// Start starts a run. One with the same id is an error of the kind Exists.
func (s Runs) Start(ctx context.Context, id, digest string, in *contract.RunInput, weight float64) error {
	start := contract.StartOfRun(id, in, weight)
	start.Memo[contract.MemoDigest] = digest
	_, err := s.Client.ExecuteWorkflow(ctx, start.Options(), contract.RunWorkflow, *in)
	return err
}

// Describe is a run as Temporal itself knows it, and the digest of what was dispatched.
func (s Runs) Describe(ctx context.Context, id string) (run api.Run, digest string, err error) {
	info, err := s.Store.Describe(ctx, contract.RunWorkflowID(id))
	if err != nil {
		return run, "", err
	}
	contract.Decode(info.GetMemo().GetFields()[contract.MemoDigest], &digest)
	e := OfRunInfo(info)
	run = api.Run{ID: id, Cluster: e.Cluster, Tenant: e.Tenant, WorkflowID: info.GetExecution().GetWorkflowId(),
		WorkflowRunID: info.GetExecution().GetRunId()}
	run.Job, run.JobVersion, run.Status = e.Job, e.JobVersion, e.Status
	run.EndedAt, run.Steps = e.EndedAt, []api.StepEntry{}
	if e.StartedAt != nil {
		run.StartedAt = *e.StartedAt
	}
	return run, digest, nil
}

// Complete adds to a described run its ledger: from its workflow, or from the result of that. known is false where
// there is none, and the run's Why says that.
func (s Runs) Complete(ctx context.Context, run *api.Run) (known bool, err error) {
	var ledger job.Ledger
	if !run.Status.Final() {
		ctx, cancel := context.WithTimeout(ctx, recordTimeout)
		defer cancel()
		if ledger, err = contract.LedgerQuery.Ask(ctx, s.Client, run.WorkflowID); err != nil {
			run.Why = "no worker answered for the run; only what Temporal itself knows is shown"
			return false, nil
		}
		run.Ledger = api.Ledger(ledger)
		s.takeDeliveries(ctx, run)
		return true, nil
	}
	end, err := s.End(ctx, run.WorkflowID, run.WorkflowRunID)
	if err != nil {
		return false, err
	}
	if !end.Read(&ledger) {
		run.Why = end.Why()
		return false, nil
	}
	run.Ledger = api.Ledger(ledger)
	return true, nil
}

// takeDeliveries marks the tasks of an open run that agents have, because the run itself does not learn that. If
// Temporal does not answer, they stay queued.
func (s Runs) takeDeliveries(ctx context.Context, run *api.Run) {
	begun := func(e api.StepEntry) bool { return e.Begun && e.TaskID != "" && !e.Status.Final() }
	if !slices.ContainsFunc(run.Steps, begun) {
		return
	}
	d, err := s.Client.DescribeWorkflowExecution(ctx, run.WorkflowID, "")
	if err != nil {
		return
	}
	take := func(w *api.StepWork) bool {
		_, key, _ := strings.Cut(w.TaskID, job.StepMark)
		delivery := deliveryOf(d.GetPendingActivities(), key)
		if w.Status != api.StepQueued || delivery == nil || !delivery.Started() {
			return false
		}
		w.Status, w.Why, w.Attempts = api.StepRunning, "", append(w.Attempts, delivery.Attempt)
		return true
	}
	for i := range run.Steps {
		e := &run.Steps[i]
		take(&e.StepWork)
		if v := e.Verdict; v != nil && take(v) && e.Status == api.StepQueued {
			e.Status = api.StepRunning
		}
		for j := range e.Elements {
			if take(&e.Elements[j]) && e.Status == api.StepQueued {
				e.Status = api.StepRunning
			}
		}
	}
}

// Input is what a run was started with, from the first event of its history; it needs no worker.
func (s Runs) Input(ctx context.Context, run *api.Run) (in contract.RunInput, err error) {
	payload, err := s.firstInput(ctx, run.WorkflowID, run.WorkflowRunID)
	if err == nil {
		contract.Decode(payload, &in)
	}
	return in, err
}

// firstInput is the input of a run of a workflow; nil for none.
func (s Store) firstInput(ctx context.Context, workflowID, runID string) (*commonpb.Payload, error) {
	page, err := s.Client.WorkflowService().GetWorkflowExecutionHistory(ctx,
		&workflowservice.GetWorkflowExecutionHistoryRequest{
			Namespace: s.Namespace, MaximumPageSize: 1,
			Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID},
		})
	events := page.GetHistory().GetEvents()
	if err != nil || len(events) == 0 {
		return nil, err
	}
	if p := events[0].GetWorkflowExecutionStartedEventAttributes().GetInput().GetPayloads(); len(p) > 0 {
		return p[0], nil
	}
	return nil, nil
}
