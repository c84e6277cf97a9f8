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

// bare is plain Temporal: one workflow with one activity for each task, run by an SDK worker in this process.
type bare struct {
	name   string
	client client.Client
	worker sdkworker.Worker
}

// newBare starts the worker. Its pollers are as many as Mainstay's, its other settings the SDK's defaults, eager
// activities among them.
func newBare(c client.Client, name string, activityPollers int) (*bare, error) {
	w, err := startBare(c, sdkworker.Options{MaxConcurrentWorkflowTaskPollers: bareWorkflowPollers,
		MaxConcurrentActivityTaskPollers: activityPollers})
	return &bare{name, c, w}, err
}

// startBare runs a worker. What its options leave out, workflows or activities, it does not run.
func startBare(c client.Client, o sdkworker.Options) (sdkworker.Worker, error) {
	w := sdkworker.New(c, bareQueue, o)
	if !o.DisableWorkflowWorker {
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context) (int64, error) {
			ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
			var began int64
			err := workflow.ExecuteActivity(ctx, bareActivity).Get(ctx, &began)
			return began, err
		}, workflow.RegisterOptions{Name: bareWorkflow})
	}
	if !o.LocalActivityWorkerOnly {
		w.RegisterActivityWithOptions(func(context.Context) (int64, error) { return time.Now().UnixNano(), nil },
			activity.RegisterOptions{Name: bareActivity})
	}
	if err := w.Start(); err != nil {
		return nil, fmt.Errorf("start the bare worker: %w", err)
	}
	return w, nil
}

// start starts a task.
func (b *bare) start(ctx context.Context, id string) error {
	_, err := b.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: bareQueue}, bareWorkflow)
	return err
}

func (b *bare) Name() string { return b.name }

func (b *bare) Submit(ctx context.Context) (string, error) {
	id := "bare/" + uuid.NewString()
	return id, b.start(ctx, id)
}

func (b *bare) Begun(ctx context.Context, id string) (began, closed time.Time, err error) {
	var at int64
	closed, err = outcome(ctx, b.client, id, &at)
	return time.Unix(0, at), closed, err
}

// outcome waits until a workflow has completed, and returns its result and when that was. It asks again and again: long
// polls on history miss a close now and then and would distort the measurement.
func outcome(ctx context.Context, c client.Client, id string, result any) (closed time.Time, err error) {
	if err := eventually(ctx, "the end of "+id, noLimit, 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		d, err := c.DescribeWorkflowExecution(ctx, id, "")
		if err != nil {
			return false, fmt.Errorf("describe %s: %w", id, err)
		}
		switch info := d.GetWorkflowExecutionInfo(); info.GetStatus() {
		case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
			return false, nil
		case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
			closed = info.GetCloseTime().AsTime()
			return true, nil
		default:
			return false, fmt.Errorf("%s ended as %s", id, info.GetStatus())
		}
	}); err != nil {
		return closed, err
	}
	return closed, c.GetWorkflow(ctx, id, "").Get(ctx, result) // closed already: answers at once
}
