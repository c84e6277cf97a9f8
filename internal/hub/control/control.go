// Package control takes the commands that Temporal sends to a hub's process.
package control

import (
	"context"
	"fmt"
	"time"

	workerservicepb "go.temporal.io/api/nexusservices/workerservice/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/backoff"
)

// retry is the pause after a failed poll, as where the server has no worker commands. Cancellations then arrive with
// the next attempt heartbeat.
const retry = 5 * time.Second

// Control carries out the server's commands. They push cancellations at once.
type Control struct {
	hub    part.Hub
	cancel func(token []byte)
}

// New makes the control of a process of a hub. cancel cancels the attempt with this Temporal token, if the hub has it.
func New(hub part.Hub, cancel func(token []byte)) *Control { return &Control{hub: hub, cancel: cancel} }

// Run takes commands until the context ends.
func (c *Control) Run(ctx context.Context) {
	for ctx.Err() == nil {
		task, err := c.poll(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.hub.Logger.Debug("The poll for worker commands failed", zap.Error(err))
				backoff.Pause(ctx, retry)
			}
			continue
		}
		if len(task.GetTaskToken()) > 0 {
			if err := c.carryOut(ctx, task); err != nil && ctx.Err() == nil {
				c.hub.Logger.Warn("A worker command was not carried out", zap.Error(err))
			}
		}
	}
}

// poll takes one command. It ends when the hub stops: the attempt heartbeat of the next hub repeats a command that is
// lost then.
func (c *Control) poll(run context.Context) (*workflowservice.PollNexusTaskQueueResponse, error) {
	ctx, cancel := context.WithTimeout(run, store.PollTimeout)
	defer cancel()
	task, err := c.hub.PollCommands(ctx)
	if ctx.Err() != nil && run.Err() == nil {
		return nil, nil
	}
	return task, err
}

func (c *Control) carryOut(ctx context.Context, task *workflowservice.PollNexusTaskQueueResponse) error {
	var request workerservicepb.ExecuteCommandsRequest
	if err := proto.Unmarshal(task.GetRequest().GetStartOperation().GetPayload().GetData(), &request); err != nil {
		return fmt.Errorf("read worker commands: %w", err)
	}
	var response workerservicepb.ExecuteCommandsResponse
	for _, command := range request.GetCommands() {
		if cancel := command.GetCancelActivity(); cancel != nil {
			c.cancel(cancel.GetTaskToken())
			response.Results = append(response.Results, &workerpb.WorkerCommandResult{
				Type: &workerpb.WorkerCommandResult_CancelActivity{CancelActivity: &workerpb.CancelActivityResult{}}})
			continue
		}
		response.Results = append(response.Results, &workerpb.WorkerCommandResult{})
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return c.hub.AnswerCommands(ctx, task, &response)
}
