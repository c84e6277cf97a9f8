package hub

import (
	"bytes"
	"context"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	deploymentpb "go.temporal.io/api/deployment/v1"
	enumspb "go.temporal.io/api/enums/v1"
	nexuspb "go.temporal.io/api/nexus/v1"
	workerservicepb "go.temporal.io/api/nexusservices/workerservice/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// commandRetry spaces polls that fail, as where the server does not know worker commands. Cancellations then arrive
// with the next attempt heartbeat.
const commandRetry = 5 * time.Second

// controlQueue is where the server sends this hub process its commands.
func (h *Hub) controlQueue() string {
	return fmt.Sprintf("temporal-sys/worker-commands/%s/%s", h.namespace, h.instance)
}

// takeCommands takes the server's commands, which push a cancellation at once, until the hub stops.
func (h *Hub) takeCommands() {
	for h.run.Err() == nil {
		task, err := h.pollCommand()
		if err != nil {
			if h.run.Err() == nil {
				h.log.Debug("The poll for worker commands failed", zap.Error(err))
				h.pause(commandRetry)
			}
			continue
		}
		if len(task.GetTaskToken()) > 0 {
			if err := h.carryOut(task); err != nil && h.run.Err() == nil {
				h.log.Warn("A worker command was not carried out", zap.Error(err))
			}
		}
	}
}

// pollCommand is cancelled when the hub stops: a command that is lost then is repeated by the attempt heartbeat of the
// hub that takes over.
func (h *Hub) pollCommand() (*workflowservice.PollNexusTaskQueueResponse, error) {
	ctx, cancel := context.WithTimeout(h.run, pollTimeout)
	defer cancel()
	task, err := h.service.PollNexusTaskQueue(ctx, &workflowservice.PollNexusTaskQueueRequest{
		Namespace: h.namespace, Identity: h.identity(), WorkerInstanceKey: h.instance,
		TaskQueue:         &taskqueuepb.TaskQueue{Name: h.controlQueue(), Kind: enumspb.TASK_QUEUE_KIND_WORKER_COMMANDS},
		DeploymentOptions: &deploymentpb.WorkerDeploymentOptions{BuildId: "1.0", WorkerVersioningMode: enumspb.WORKER_VERSIONING_MODE_UNVERSIONED},
	})
	if ctx.Err() != nil && h.run.Err() == nil {
		return nil, nil
	}
	return task, err
}

func (h *Hub) carryOut(task *workflowservice.PollNexusTaskQueueResponse) error {
	var request workerservicepb.ExecuteCommandsRequest
	if err := proto.Unmarshal(task.GetRequest().GetStartOperation().GetPayload().GetData(), &request); err != nil {
		return fmt.Errorf("read worker commands: %w", err)
	}
	var response workerservicepb.ExecuteCommandsResponse
	for _, command := range request.GetCommands() {
		if cancel := command.GetCancelActivity(); cancel != nil {
			h.cancelToken(cancel.GetTaskToken())
			response.Results = append(response.Results, &workerpb.WorkerCommandResult{
				Type: &workerpb.WorkerCommandResult_CancelActivity{CancelActivity: &workerpb.CancelActivityResult{}}})
			continue
		}
		response.Results = append(response.Results, &workerpb.WorkerCommandResult{})
	}
	body, err := proto.Marshal(&response)
	if err != nil {
		return fmt.Errorf("encode command results: %w", err)
	}
	ctx, cancel := context.WithTimeout(h.run, 5*time.Second)
	defer cancel()
	_, err = h.service.RespondNexusTaskCompleted(ctx, &workflowservice.RespondNexusTaskCompletedRequest{
		Namespace: h.namespace, Identity: h.identity(), TaskToken: task.GetTaskToken(), PollerGroupId: task.GetPollerGroupId(),
		Response: &nexuspb.Response{Variant: &nexuspb.Response_StartOperation{StartOperation: &nexuspb.StartOperationResponse{
			Variant: &nexuspb.StartOperationResponse_SyncSuccess{SyncSuccess: &nexuspb.StartOperationResponse_Sync{Payload: &commonpb.Payload{Data: body}}},
		}}},
	})
	if err != nil {
		return fmt.Errorf("answer worker commands: %w", err)
	}
	return nil
}

// cancelToken cancels the attempt with this Temporal token.
func (h *Hub) cancelToken(token []byte) {
	if a := h.byToken(token); a != nil {
		h.cancelAttempt(a)
	}
}

func (h *Hub) byToken(token []byte) *attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		for _, a := range s.attempts {
			if bytes.Equal(a.token, token) {
				return a
			}
		}
	}
	return nil
}
