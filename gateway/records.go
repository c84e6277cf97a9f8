package gateway

import (
	"context"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/contract"
)

// workflowRecord reads the record that a workflow keeps of what it does: it is asked by query while it runs, and what it
// returned tells afterwards. When neither can be had, why says so in a sentence for people.
func workflowRecord[T any](ctx context.Context, g *Gateway, info *workflowpb.WorkflowExecutionInfo, query contract.Query[T]) (record T, why string) {
	workflowID, runID := info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId()
	if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return endedRecord[T](ctx, g, workflowID, runID)
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	record, err := query.AskRun(ctx, g.client, workflowID, runID)
	if err != nil {
		g.logger.Debug("a workflow did not tell its record", zap.String("workflow", workflowID), zap.Error(err))
		return record, "no worker answered for it; only what Temporal itself knows is shown"
	}
	return record, ""
}

func endedRecord[T any](ctx context.Context, g *Gateway, workflowID, runID string) (record T, why string) {
	events := g.client.GetWorkflowHistory(ctx, workflowID, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	var last *historypb.HistoryEvent
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			g.logger.Debug("a workflow's last event was not read", zap.String("workflow", workflowID), zap.Error(err))
			return record, "Temporal did not answer in time; only a part of the record is shown"
		}
		last = event
	}
	switch last.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
		result := last.GetWorkflowExecutionCompletedEventAttributes().GetResult()
		if err := converter.GetDefaultDataConverter().FromPayloads(result, &record); err != nil {
			g.logger.Warn("a workflow's record cannot be read", zap.String("workflow", workflowID), zap.Error(err))
			return record, "its record cannot be read; the Temporal Web UI shows it"
		}
		return record, ""
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		return record, "its workflow was terminated"
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
		return record, "its workflow was cancelled"
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
		return record, "its workflow ran out of time"
	}
	return record, "its workflow failed; the Temporal Web UI shows the failure"
}
