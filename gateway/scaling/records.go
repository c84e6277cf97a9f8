package scaling

import (
	"context"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// scalings are the records of what scaling has done.
func (h *Handlers) scalings() store.Records[fleet.ScalingRecord] {
	return store.Records[fleet.ScalingRecord]{Store: h.Store, Query: contract.ScalingQuery, Partial: partialScaling}
}

// scalingRecord returns the newest action with an id.
func (h *Handlers) scalingRecord(ctx context.Context, id string) (fleet.ScalingRecord, error) {
	cluster, number, ok := contract.ParseScalingID(id)
	workflowID := contract.ScalingWorkflowID(cluster, number)
	return rest.RecordOf(ctx, h.Core, h.scalings(), workflowID, ok, protocol.CodeUnknownScaling)
}

func (h *Handlers) listScalings(ctx context.Context, in *listScalingsInput) (out *listScalingsOutput, err error) {
	query := rest.AllOf(contract.Equals("WorkflowType", contract.ScalingWorkflow),
		rest.Filter(contract.AttrCluster.GetName(), in.Cluster))
	out = &listScalingsOutput{}
	out.Body.Scalings, out.Body.NextPageToken, err = rest.PageOf(
		ctx, h.Core, "list actions of scaling", h.scalings().Page, query, in.RecordPageInput)
	return out, err
}

// partialScaling is what Temporal itself knows of an action.
func partialScaling(info *workflowpb.WorkflowExecutionInfo, why string) (fleet.ScalingRecord, bool) {
	cluster, number, ok := contract.ScalingOfWorkflowID(info.GetExecution().GetWorkflowId())
	record := fleet.ScalingRecord{
		ID: contract.ScalingID(cluster, number), Cluster: cluster, Status: fleet.ScalingRunning, Error: why,
		Agents: []fleet.ScaledAgent{},
	}
	if t := store.TimeOf(info.GetStartTime()); t != nil {
		record.StartedAt = *t
	}
	if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		record.Status = fleet.ScalingFailed
	}
	return record, ok
}
