package failover

import (
	"context"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// failovers are the records of failovers.
func (h *Handlers) failovers() store.Records[fleet.FailoverRecord] {
	return store.Records[fleet.FailoverRecord]{Store: h.Store, Query: contract.FailoverQuery, Partial: partialFailover}
}

// failover returns the newest record with an id.
func (h *Handlers) failover(ctx context.Context, id string) (fleet.FailoverRecord, error) {
	cluster, agent, epoch, ok := contract.ParseFailoverID(id)
	workflowID := contract.FailoverWorkflowID(cluster, agent, epoch)
	return rest.RecordOf(ctx, h.Core, h.failovers(), workflowID, ok, protocol.CodeUnknownFailover)
}

// Newest are the newest failovers, so many.
func (h *Handlers) Newest(ctx context.Context, most int) ([]fleet.FailoverRecord, error) {
	out, err := h.listFailovers(ctx, &listFailoversInput{RecordPageInput: rest.RecordPageInput{PageSize: most}})
	if err != nil {
		return nil, err
	}
	return out.Body.Failovers, nil
}

func (h *Handlers) listFailovers(ctx context.Context, in *listFailoversInput) (*listFailoversOutput, error) {
	records, next, err := rest.PageOf(ctx, h.Core, "list failovers", h.failovers().Page, failoverQuery(in),
		in.RecordPageInput)
	if err != nil {
		return nil, err
	}
	out := &listFailoversOutput{}
	other := func(r fleet.FailoverRecord) bool { return in.Status != "" && r.Status != in.Status }
	out.Body.Failovers, out.Body.NextPageToken = slices.DeleteFunc(records, other), next
	return out, nil
}

// failoverQuery is the visibility query of a list.
func failoverQuery(in *listFailoversInput) string {
	running := enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	var status string
	switch in.Status {
	case "":
	case fleet.FailoverRunning:
		status = contract.ExecutionIs(running)
	case fleet.FailoverFailed: // also of a workflow that failed itself
		status = "ExecutionStatus != " + contract.Quoted(running.String())
	default:
		status = contract.ExecutionIs(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
	}
	return rest.AllOf(contract.Equals("WorkflowType", contract.FailoverWorkflow),
		rest.Filter(contract.AttrCluster.GetName(), in.Cluster),
		rest.Filter(contract.AttrAgent.GetName(), in.Agent), status)
}

// partialFailover is what Temporal itself knows of a failover.
func partialFailover(info *workflowpb.WorkflowExecutionInfo, why string) (fleet.FailoverRecord, bool) {
	cluster, agent, epoch, ok := contract.FailoverOfWorkflowID(info.GetExecution().GetWorkflowId())
	record := fleet.FailoverRecord{
		ID: contract.FailoverID(cluster, agent, epoch), Cluster: cluster, FailedAgentID: agent, Epoch: epoch,
		Status: fleet.FailoverRunning, Error: why,
	}
	if t := store.TimeOf(info.GetStartTime()); t != nil {
		record.StartedAt, record.NoticedAt = *t, *t
	}
	if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		record.Status, record.CompletedAt = fleet.FailoverFailed, store.TimeOf(info.GetCloseTime())
	}
	return record, ok
}
