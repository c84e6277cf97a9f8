package gateway

import (
	"context"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/parallel"
	"mainstay.dev/mainstay/protocol"
)

// recordTimeout bounds reading the records of a page. What did not answer by then is shown as Temporal alone knows it.
const recordTimeout = 3 * time.Second

// failover returns the newest record with an id.
func (g *Gateway) failover(ctx context.Context, id string) (fleet.FailoverRecord, error) {
	cluster, agent, epoch, ok := contract.ParseFailoverID(id)
	if !ok {
		return fleet.FailoverRecord{}, unknown(protocol.CodeUnknownFailover)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	description, err := g.client.DescribeWorkflowExecution(ctx, contract.FailoverWorkflowID(cluster, agent, epoch), "")
	if err != nil {
		return fleet.FailoverRecord{}, g.answer(err, "describe a failover", protocol.CodeUnknownFailover)
	}
	record, ok := failoverOf(description.GetWorkflowExecutionInfo())
	if !ok {
		return fleet.FailoverRecord{}, unknown(protocol.CodeUnknownFailover)
	}
	g.completeRecord(ctx, &record, description.GetWorkflowExecutionInfo())
	return record, nil
}

func (g *Gateway) listFailovers(ctx context.Context, in *listFailoversInput) (*listFailoversOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page, next, err := g.workflowPage(ctx, "list failovers", failoverQuery(in), in.PageSize, in.PageToken)
	if err != nil {
		return nil, err
	}
	records := g.records(ctx, page)
	out := &listFailoversOutput{}
	out.Body.Failovers = make([]fleet.FailoverRecord, 0, len(records))
	for i := range records {
		if records[i].ID != "" && (in.Status == "" || records[i].Status == in.Status) {
			out.Body.Failovers = append(out.Body.Failovers, records[i])
		}
	}
	out.Body.NextPageToken = next
	return out, nil
}

// records reads the failovers of a page side by side; one without an id is none of Mainstay's.
func (g *Gateway) records(ctx context.Context, infos []*workflowpb.WorkflowExecutionInfo) []fleet.FailoverRecord {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	records := make([]fleet.FailoverRecord, len(infos))
	parallel.Each(len(infos), fanOut, func(i int) {
		if record, ok := failoverOf(infos[i]); ok {
			g.completeRecord(ctx, &record, infos[i])
			records[i] = record
		}
	})
	return records
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
	return allOf(contract.Equals("WorkflowType", contract.FailoverWorkflow), filter(contract.AttrCluster.GetName(), in.Cluster),
		filter(contract.AttrAgent.GetName(), in.Agent), status)
}

// failoverOf is what an execution's record tells of a failover, without asking its workflow.
func failoverOf(info *workflowpb.WorkflowExecutionInfo) (fleet.FailoverRecord, bool) {
	cluster, agent, epoch, ok := contract.FailoverOfWorkflowID(info.GetExecution().GetWorkflowId())
	if !ok {
		return fleet.FailoverRecord{}, false
	}
	record := fleet.FailoverRecord{
		ID: contract.FailoverID(cluster, agent, epoch), Cluster: cluster, FailedAgentID: agent, Epoch: epoch, Status: fleet.FailoverRunning,
	}
	if t := info.GetStartTime(); t != nil {
		record.StartedAt = t.AsTime().UTC()
		record.NoticedAt = record.StartedAt
	}
	if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		record.Status = fleet.FailoverFailed
		if t := info.GetCloseTime(); t != nil {
			record.CompletedAt = known(t.AsTime())
		}
	}
	return record, true
}

// completeRecord puts in what the workflow knows. When it does not answer, the record stays as it is and its error says so.
func (g *Gateway) completeRecord(ctx context.Context, record *fleet.FailoverRecord, info *workflowpb.WorkflowExecutionInfo) {
	full, why := workflowRecord(ctx, g, info, contract.FailoverQuery)
	if why != "" {
		record.Error = why
		return
	}
	full.ID, full.Cluster, full.FailedAgentID, full.Epoch = record.ID, record.Cluster, record.FailedAgentID, record.Epoch
	*record = full
}
