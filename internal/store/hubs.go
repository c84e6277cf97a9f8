package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	deploymentpb "go.temporal.io/api/deployment/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	nexuspb "go.temporal.io/api/nexus/v1"
	workerservicepb "go.temporal.io/api/nexusservices/workerservice/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/proto"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// Hub is Temporal as one process of a hub uses it: it polls lanes and reports attempts as a worker does.
type Hub struct {
	Store
	ID       string // of the hub
	Process  string // of this process
	Identity string // how the hub appears as a poller
}

// Hub is the store for a process of a hub.
func (s Store) Hub(id, process string) Hub {
	return Hub{Store: s, ID: id, Process: process, Identity: contract.HubIdentity(id)}
}

// TakeLease starts the workflow of the hub's lease, or has it know of this process.
func (h Hub) TakeLease(ctx context.Context, host string, pid int) error {
	_, err := h.Client.SignalWithStartWorkflow(ctx, contract.HubWorkflowID(h.ID), contract.HubStartedSignal.Name,
		contract.HubStarted{Instance: h.Process, Host: host, PID: pid},
		client.StartWorkflowOptions{TaskQueue: contract.WorkerQueue, StaticSummary: "lease of hub " + h.ID},
		contract.HubWorkflow, contract.HubInput{Hub: h.ID})
	return err
}

// Heartbeat renews an activity that the hub carries out. cancelled: Temporal wants it to end.
func (h Hub) Heartbeat(ctx context.Context, token []byte, details *commonpb.Payloads) (cancelled bool, err error) {
	answer, err := h.Client.WorkflowService().RecordActivityTaskHeartbeat(ctx,
		&workflowservice.RecordActivityTaskHeartbeatRequest{
			TaskToken: token, Details: details, Identity: h.Identity, Namespace: h.Namespace,
		})
	return answer.GetCancelRequested(), err
}

// PollTimeout is how long a hub keeps a poll open; the server answers empty shortly before.
const PollTimeout = 70 * time.Second

// PollLane waits for a task on a lane. key names the poll to ReleasePolls.
func (h Hub) PollLane(
	ctx context.Context, lane, key string,
) (*workflowservice.PollActivityTaskQueueResponse, error) {
	return h.Client.WorkflowService().PollActivityTaskQueue(ctx, &workflowservice.PollActivityTaskQueueRequest{
		Namespace:              h.Namespace,
		TaskQueue:              &taskqueuepb.TaskQueue{Name: lane, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
		Identity:               h.Identity,
		WorkerInstanceKey:      key,
		WorkerControlTaskQueue: h.commandQueue(),
	})
}

// ReleasePolls makes the server answer the polls of a lane with this key empty, without losing a task.
func (h Hub) ReleasePolls(ctx context.Context, lane, key string) error {
	_, err := h.Client.WorkflowService().ShutdownWorker(ctx, &workflowservice.ShutdownWorkerRequest{
		Namespace: h.Namespace, Identity: h.Identity, Reason: "no agent serves the lane here",
		WorkerInstanceKey: key,
		TaskQueue:         lane,
		TaskQueueTypes:    []enumspb.TaskQueueType{enumspb.TASK_QUEUE_TYPE_ACTIVITY},
	})
	return err
}

// AttemptPayloads are an attempt's report and, where it wrote something, the end of its log. Workflows read the first
// only.
func AttemptPayloads(report contract.AttemptReport, log []api.LogLine) (*commonpb.Payloads, error) {
	p, err := contract.Payloads.ToPayloads(report)
	if err == nil && len(log) > 0 {
		var end *commonpb.Payload
		end, err = contract.Payloads.ToPayload(log)
		p.Payloads = append(p.Payloads, end)
	}
	if err != nil {
		return nil, fmt.Errorf("encode an attempt report: %w", err)
	}
	return p, nil
}

// Complete reports an attempt that has a result.
func (h Hub) Complete(ctx context.Context, token []byte, report contract.AttemptReport, log []api.LogLine) error {
	result, err := AttemptPayloads(report, log)
	if err != nil {
		return err
	}
	_, err = h.Client.WorkflowService().RespondActivityTaskCompleted(ctx,
		&workflowservice.RespondActivityTaskCompletedRequest{
			TaskToken: token, Result: result, Identity: h.Identity, Namespace: h.Namespace,
		})
	return err
}

// Cancelled reports an attempt that ended because Temporal wanted it to.
func (h Hub) Cancelled(ctx context.Context, token []byte, report contract.AttemptReport, log []api.LogLine) error {
	details, err := AttemptPayloads(report, log)
	if err != nil {
		return err
	}
	_, err = h.Client.WorkflowService().RespondActivityTaskCanceled(ctx,
		&workflowservice.RespondActivityTaskCanceledRequest{
			TaskToken: token, Details: details, Identity: h.Identity, Namespace: h.Namespace,
		})
	return err
}

// Fail reports an attempt that ended without a result.
func (h Hub) Fail(ctx context.Context, token []byte, report contract.AttemptReport, log []api.LogLine) error {
	details, err := AttemptPayloads(report, log)
	if err != nil {
		return err
	}
	message := fmt.Sprintf("%s: %s", report.Outcome, report.Reason)
	if report.AgentID != "" {
		message = fmt.Sprintf("%s on %s: %s", report.Outcome, report.AgentID, report.Reason)
	}
	_, err = h.Client.WorkflowService().RespondActivityTaskFailed(ctx,
		&workflowservice.RespondActivityTaskFailedRequest{
			TaskToken: token, Identity: h.Identity, Namespace: h.Namespace,
			Failure: attemptFailure("mainstay-hub", message, details),
		})
	return err
}

// attemptFailure is the failure of an attempt's activity, with its report.
func attemptFailure(source, message string, report *commonpb.Payloads) *failurepb.Failure {
	return &failurepb.Failure{
		Message: strings.ToValidUTF8(message, "\uFFFD"), Source: source,
		FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
			ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{
				Type: contract.AttemptFailure, NonRetryable: true, Details: report,
			},
		},
	}
}

// Publish brings the entries of agents in the registry of workers up to date.
func (h Hub) Publish(ctx context.Context, entries []*workerpb.WorkerHeartbeat) error {
	_, err := h.Client.WorkflowService().RecordWorkerHeartbeat(ctx, &workflowservice.RecordWorkerHeartbeatRequest{
		Namespace:       h.Namespace,
		Identity:        h.Identity,
		WorkerHeartbeat: entries,
		ResourceId:      "worker:" + h.Identity,
	})
	return err
}

// commandQueue is the task queue on which the server sends commands to this process.
func (h Hub) commandQueue() string {
	return fmt.Sprintf("temporal-sys/worker-commands/%s/%s", h.Namespace, h.Process)
}

// PollCommands waits for commands of the server.
func (h Hub) PollCommands(ctx context.Context) (*workflowservice.PollNexusTaskQueueResponse, error) {
	return h.Client.WorkflowService().PollNexusTaskQueue(ctx, &workflowservice.PollNexusTaskQueueRequest{
		Namespace:         h.Namespace,
		Identity:          h.Identity,
		WorkerInstanceKey: h.Process,
		TaskQueue: &taskqueuepb.TaskQueue{
			Name: h.commandQueue(),
			Kind: enumspb.TASK_QUEUE_KIND_WORKER_COMMANDS,
		},
		DeploymentOptions: &deploymentpb.WorkerDeploymentOptions{
			BuildId:              "1.0",
			WorkerVersioningMode: enumspb.WORKER_VERSIONING_MODE_UNVERSIONED,
		},
	})
}

// AnswerCommands answers commands of the server.
func (h Hub) AnswerCommands(
	ctx context.Context, task *workflowservice.PollNexusTaskQueueResponse,
	results *workerservicepb.ExecuteCommandsResponse,
) error {
	body, err := proto.Marshal(results)
	if err != nil {
		return fmt.Errorf("encode command results: %w", err)
	}
	_, err = h.Client.WorkflowService().RespondNexusTaskCompleted(ctx,
		&workflowservice.RespondNexusTaskCompletedRequest{
			Namespace:     h.Namespace,
			Identity:      h.Identity,
			TaskToken:     task.GetTaskToken(),
			PollerGroupId: task.GetPollerGroupId(),
			Response: &nexuspb.Response{
				Variant: &nexuspb.Response_StartOperation{StartOperation: &nexuspb.StartOperationResponse{
					Variant: &nexuspb.StartOperationResponse_SyncSuccess{
						SyncSuccess: &nexuspb.StartOperationResponse_Sync{Payload: &commonpb.Payload{Data: body}}},
				}}},
		})
	if err != nil {
		return fmt.Errorf("answer worker commands: %w", err)
	}
	return nil
}
