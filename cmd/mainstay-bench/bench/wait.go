package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

const (
	// settleLimit bounds what should take a moment.
	settleLimit = time.Minute
	// stuckLimit is how long something may stand still until a run is given up.
	stuckLimit = 2 * time.Minute
	// noLimit is longer than any benchmark.
	noLimit = 24 * time.Hour
)

// eventually asks until done, and says after limit what it waited for in vain. An error of done ends it.
func eventually(
	ctx context.Context, what string, limit, every time.Duration, done func(context.Context) (bool, error),
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("after %s there is still no sign of %s", limit,
		what))
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := done(ctx)
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// advancing reads a number until it is at least n, and gives up when it stands still for stuckLimit.
func advancing(
	ctx context.Context, what string, n int, every time.Duration, read func(context.Context) (int, error),
) error {
	best, since := -1, time.Now()
	return eventually(ctx, what, noLimit, every, func(ctx context.Context) (bool, error) {
		now, err := read(ctx)
		switch {
		case err != nil || now >= n:
			return true, err
		case now > best:
			best, since = now, time.Now()
		case time.Since(since) > stuckLimit:
			err = fmt.Errorf("waiting for %s: there are %d, and no more came in %s", what, best, stuckLimit)
		}
		return false, err
	})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// eachOf calls do for 0…n-1, at most atOnce at the same time, and returns the first error, which ends the others.
func eachOf(ctx context.Context, n, atOnce int, do func(context.Context, int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(atOnce)
	for i := range n {
		all.Go(func() error { return do(ctx, i) })
	}
	return all.Wait()
}

// batchSize is the most tasks that one request may bring.
const batchSize = 1000

// submitBatches submits n tasks through /tasks/batch, one request after the other. first numbers the first of them.
func (c *crew) submitBatches(ctx context.Context, first, n int, spec api.TaskSpec) error {
	begun := time.Now()
	spec.Cluster = c.cluster
	for done := 0; done < n; {
		batch := make([]*api.TaskRequest, min(n-done, batchSize))
		for k := range batch {
			batch[k] = &api.TaskRequest{ID: c.taskID(first + done + k), TaskSpec: spec}
		}
		items, err := client.SubmitAll(ctx, c.Client, batch)
		if err != nil {
			return err
		}
		for k := range items {
			if items[k].Error != nil {
				return fmt.Errorf("the task %s was not accepted: %s", batch[k].ID, items[k].Error.Detail)
			}
		}
		if done += len(batch); n > batchSize {
			fmt.Fprintf(c.story, "%d of %d tasks submitted after %s\n", done, n,
				time.Since(begun).Round(100*time.Millisecond))
		}
	}
	return nil
}

// awaitBacklog returns when n activities wait on a task queue that nobody polls.
func (i *Installation) awaitBacklog(ctx context.Context, queue string, n int) error {
	return advancing(ctx, fmt.Sprintf("%d tasks on %s", n, queue), n, 50*time.Millisecond,
		func(ctx context.Context) (int, error) {
			// The status is deprecated, but the stats that replace it are up to 5 s old.
			described, err := i.sdk.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
				Namespace:              i.namespace,
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

func completedQuery(workflowType string) string {
	return fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Completed'", workflowType)
}

// awaitCompleted returns when n workflows of a type have completed, as far as visibility shows.
func (i *Installation) awaitCompleted(ctx context.Context, workflowType string, n int) error {
	return advancing(ctx, fmt.Sprintf("%d completed tasks", n), n, time.Second, func(ctx context.Context) (int, error) {
		count, err := i.sdk.CountWorkflow(ctx,
			&workflowservice.CountWorkflowExecutionsRequest{Query: completedQuery(workflowType)})
		if err != nil {
			return 0, fmt.Errorf("count workflows: %w", err)
		}
		return int(count.GetCount()), nil
	})
}

// lastClose is when the last of a type's workflows closed, by the server's clock.
func (i *Installation) lastClose(ctx context.Context, workflowType string) (time.Time, error) {
	var last time.Time
	for w, err := range (store.Store{Client: i.sdk}).Workflows(ctx, completedQuery(workflowType)) {
		if err != nil {
			return last, fmt.Errorf("list workflows: %w", err)
		}
		if closed := w.GetCloseTime().AsTime(); closed.After(last) {
			last = closed
		}
	}
	return last, nil
}
