package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/store"
)

const (
	// batchSize is the most tasks that one request may bring.
	batchSize = 1000
	// batchLimit bounds one request with a batch.
	batchLimit = 2 * time.Minute
	// stuckLimit is how long something may stand still until a run is given up.
	stuckLimit = 2 * time.Minute
)

// queuedTask is a task as it is submitted.
type queuedTask struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Cluster  string   `json:"cluster"`
	Priority int      `json:"priority,omitempty"`
	Tenant   string   `json:"tenant,omitempty"`
	Agent    string   `json:"agent,omitempty"`
	Required []string `json:"required_capabilities,omitempty"`
	Payload  any      `json:"payload,omitempty"`
}

// trivialWork is the payload of a task that only notes in the ledger that it began.
var trivialWork = workPayload{fleet.Duration(0)}

// submitBatches submits tasks through /tasks/batch, one request after the other, and returns how long it took in all.
func (i *Installation) submitBatches(
	ctx context.Context, tasks []queuedTask, progress io.Writer,
) (time.Duration, error) {
	begun := time.Now()
	for done := 0; done < len(tasks); {
		batch := tasks[done:min(done+batchSize, len(tasks))]
		if err := i.submitBatch(ctx, batch); err != nil {
			return 0, err
		}
		done += len(batch)
		if len(tasks) > batchSize {
			fmt.Fprintf(progress, "%d of %d tasks submitted after %s\n", done, len(tasks),
				time.Since(begun).Round(100*time.Millisecond))
		}
	}
	return time.Since(begun), nil
}

func (i *Installation) submitBatch(ctx context.Context, batch []queuedTask) error {
	ctx, cancel := context.WithTimeout(ctx, batchLimit)
	defer cancel()
	var answer struct {
		Accepted int `json:"accepted"`
		Tasks    []struct {
			Error *struct {
				Detail string `json:"detail"`
			} `json:"error"`
		} `json:"tasks"`
	}
	if err := i.call(ctx, http.MethodPost, "/tasks/batch", batch, &answer); err != nil {
		return err
	}
	if answer.Accepted == len(batch) {
		return nil
	}
	for _, task := range answer.Tasks {
		if task.Error != nil {
			return fmt.Errorf("%d of %d tasks were not accepted, the first because: %s", len(batch)-answer.Accepted,
				len(batch), task.Error.Detail)
		}
	}
	return fmt.Errorf("%d of %d tasks were not accepted", len(batch)-answer.Accepted, len(batch))
}

// awaitBacklog returns when n activities wait on a task queue that nobody polls.
func awaitBacklog(ctx context.Context, c client.Client, namespace, queue string, n int) error {
	return advancing(ctx, fmt.Sprintf("%d tasks on %s", n, queue), n, 50*time.Millisecond,
		func(ctx context.Context) (int, error) {
			// The status is deprecated, but the stats that replace it are up to 5 s old.
			described, err := c.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
				Namespace:              namespace,
				TaskQueue:              &taskqueuepb.TaskQueue{Name: queue},
				TaskQueueType:          enumspb.TASK_QUEUE_TYPE_ACTIVITY,
				IncludeTaskQueueStatus: true, //nolint:staticcheck // as said above
			})
			if err != nil {
				return 0, fmt.Errorf("describe the task queue %s: %w", queue, err)
			}
			return int(described.GetTaskQueueStatus().GetBacklogCountHint()), nil //nolint:staticcheck // likewise
		})
}

// completed is how many workflows of a type have completed, as far as visibility shows.
func completed(ctx context.Context, c client.Client, workflowType string) (int, error) {
	count, err := c.CountWorkflow(ctx,
		&workflowservice.CountWorkflowExecutionsRequest{Query: completedQuery(workflowType)})
	if err != nil {
		return 0, fmt.Errorf("count workflows: %w", err)
	}
	return int(count.GetCount()), nil
}

func completedQuery(workflowType string) string {
	return fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Completed'", workflowType)
}

// awaitCompleted returns when n workflows of a type have completed.
func awaitCompleted(ctx context.Context, c client.Client, workflowType string, n int) error {
	return advancing(ctx, fmt.Sprintf("%d completed tasks", n), n, time.Second, func(ctx context.Context) (int, error) {
		return completed(ctx, c, workflowType)
	})
}

// lastClose is when the last of a type's workflows closed, by the server's clock.
func lastClose(ctx context.Context, c client.Client, workflowType string) (time.Time, error) {
	var last time.Time
	for w, err := range (store.Store{Client: c}).Workflows(ctx, completedQuery(workflowType)) {
		if err != nil {
			return last, fmt.Errorf("list workflows: %w", err)
		}
		if closed := w.GetCloseTime().AsTime(); closed.After(last) {
			last = closed
		}
	}
	return last, nil
}

// advancing reads a number until it is at least n, and gives up when it stands still for stuckLimit.
func advancing(
	ctx context.Context, what string, n int, every time.Duration, read func(context.Context) (int, error),
) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	best, since := -1, time.Now()
	for {
		now, err := read(ctx)
		switch {
		case err != nil:
			return err
		case now >= n:
			return nil
		case now > best:
			best, since = now, time.Now()
		case time.Since(since) > stuckLimit:
			return fmt.Errorf("waiting for %s: there are %d, and no more came in %s", what, best, stuckLimit)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
