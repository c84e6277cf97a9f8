package gateway

import (
	"context"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/parallel"
	"mainstay.dev/mainstay/protocol"
)

// scalingRecord returns the newest action with an id.
func (g *Gateway) scalingRecord(ctx context.Context, id string) (fleet.ScalingRecord, error) {
	cluster, number, ok := contract.ParseScalingID(id)
	if !ok {
		return fleet.ScalingRecord{}, unknown(protocol.CodeUnknownScaling)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	description, err := g.client.DescribeWorkflowExecution(ctx, contract.ScalingWorkflowID(cluster, number), "")
	if err != nil {
		return fleet.ScalingRecord{}, g.answer(err, "describe an action of scaling", protocol.CodeUnknownScaling)
	}
	record, _ := g.readScaling(ctx, description.GetWorkflowExecutionInfo())
	return record, nil
}

func (g *Gateway) listScalings(ctx context.Context, in *listScalingsInput) (*listScalingsOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return g.scalings(ctx, in.Cluster, in.PageSize, in.PageToken)
}

func (g *Gateway) scalings(ctx context.Context, cluster string, size int, token string) (*listScalingsOutput, error) {
	query := allOf(contract.Equals("WorkflowType", contract.ScalingWorkflow), filter(contract.AttrCluster.GetName(), cluster))
	page, next, err := g.workflowPage(ctx, "list actions of scaling", query, size, token)
	if err != nil {
		return nil, err
	}
	readCtx, done := context.WithTimeout(ctx, recordTimeout)
	defer done()
	records, ours := make([]fleet.ScalingRecord, len(page)), make([]bool, len(page))
	parallel.Each(len(page), fanOut, func(i int) { records[i], ours[i] = g.readScaling(readCtx, page[i]) })
	out := &listScalingsOutput{}
	out.Body.Scalings = make([]fleet.ScalingRecord, 0, len(records))
	for i := range records {
		if ours[i] {
			out.Body.Scalings = append(out.Body.Scalings, records[i])
		}
	}
	out.Body.NextPageToken = next
	return out, nil
}

// readScaling reads an action's record; what Temporal alone knows is told when nothing else answers.
func (g *Gateway) readScaling(ctx context.Context, info *workflowpb.WorkflowExecutionInfo) (fleet.ScalingRecord, bool) {
	cluster, number, ok := contract.ScalingOfWorkflowID(info.GetExecution().GetWorkflowId())
	if !ok {
		return fleet.ScalingRecord{}, false
	}
	record, why := workflowRecord(ctx, g, info, contract.ScalingQuery)
	if why == "" {
		return record, true
	}
	record = fleet.ScalingRecord{ID: contract.ScalingID(cluster, number), Cluster: cluster, Status: fleet.ScalingRunning, Error: why, Agents: []fleet.ScaledAgent{}}
	if t := info.GetStartTime(); t != nil {
		record.StartedAt = t.AsTime().UTC()
	}
	if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		record.Status = fleet.ScalingFailed
	}
	return record, true
}
