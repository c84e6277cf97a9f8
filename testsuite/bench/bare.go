package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const (
	bareQueue    = "bench-bare"
	bareWorkflow = "BareTask"
	bareActivity = "BareActivity"
	// bareWorkflowPollers are as many as Mainstay's worker has.
	bareWorkflowPollers = 8
)

// Bare is plain Temporal: one workflow with one activity for each task, run by an SDK worker in this process.
type Bare struct {
	client client.Client
	worker sdkworker.Worker
}

// NewBare starts the worker. Its pollers are as many as Mainstay's, its other settings the SDK's defaults, eager
// activities among them.
func NewBare(c client.Client, activityPollers int) (*Bare, error) {
	w := sdkworker.New(c, bareQueue, sdkworker.Options{MaxConcurrentWorkflowTaskPollers: bareWorkflowPollers,
		MaxConcurrentActivityTaskPollers: activityPollers})
	registerBareWorkflow(w)
	registerBareActivity(w)
	if err := w.Start(); err != nil {
		return nil, fmt.Errorf("start the bare worker: %w", err)
	}
	return &Bare{c, w}, nil
}

func registerBareWorkflow(w sdkworker.WorkflowRegistry) {
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) (int64, error) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		var began int64
		err := workflow.ExecuteActivity(ctx, bareActivity).Get(ctx, &began)
		return began, err
	}, workflow.RegisterOptions{Name: bareWorkflow})
}

func registerBareActivity(w sdkworker.ActivityRegistry) {
	w.RegisterActivityWithOptions(func(context.Context) (int64, error) { return time.Now().UnixNano(), nil },
		activity.RegisterOptions{Name: bareActivity})
}

// Close stops the worker.
func (b *Bare) Close() { b.worker.Stop() }

// Name implements Side.
func (b *Bare) Name() string { return "bare Temporal" }

// Submit implements Side.
func (b *Bare) Submit(ctx context.Context) (string, error) {
	run, err := b.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "bare/" + uuid.NewString(),
		TaskQueue: bareQueue}, bareWorkflow)
	if err != nil {
		return "", err
	}
	return run.GetID(), nil
}

// Begun implements Side.
func (b *Bare) Begun(ctx context.Context, id string) (time.Time, time.Time, error) {
	closed, err := waitClosed(ctx, b.client, id)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	var began int64
	err = b.client.GetWorkflow(ctx, id, "").Get(ctx, &began) // closed already: answers at once
	return time.Unix(0, began), closed, err
}

// waitClosed polls until a workflow has closed. Long polls on history miss a close now and then and would distort the
// measurement.
func waitClosed(ctx context.Context, c client.Client, id string) (time.Time, error) {
	for {
		d, err := c.DescribeWorkflowExecution(ctx, id, "")
		if err != nil {
			return time.Time{}, fmt.Errorf("describe %s: %w", id, err)
		}
		switch info := d.GetWorkflowExecutionInfo(); info.GetStatus() {
		case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
			return info.GetCloseTime().AsTime(), nil
		default:
			return time.Time{}, fmt.Errorf("%s ended as %s", id, info.GetStatus())
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}
