package gateway

import (
	"context"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.uber.org/zap"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/protocol"
)

// includePayload is the value of the parameter include that asks for a task's payload.
const includePayload = "payload"

// addPayload reads what was submitted from the first event of the task's history; it needs no worker.
func (g *Gateway) addPayload(ctx context.Context, task *api.Task) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page, err := g.client.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: g.namespace, MaximumPageSize: 1,
		Execution: &commonpb.WorkflowExecution{WorkflowId: task.WorkflowID, RunId: task.RunID},
	})
	if err != nil {
		return g.answer(err, "read a task's payload", protocol.CodeUnknownTask)
	}
	events := page.GetHistory().GetEvents()
	if len(events) == 0 {
		return nil
	}
	var input contract.TaskInput
	if err := converter.GetDefaultDataConverter().FromPayloads(events[0].GetWorkflowExecutionStartedEventAttributes().GetInput(), &input); err != nil {
		g.logger.Warn("a task's input cannot be read", zap.String("task", task.ID), zap.Error(err))
		return nil
	}
	task.Payload = input.Spec.Payload
	return nil
}
