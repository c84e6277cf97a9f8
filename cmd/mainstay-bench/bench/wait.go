package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	sdkclient "go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/store"
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

// eachOf calls do for 0…n-1, so many at the same time, and returns the first error, which ends the others.
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

// submitBatches submits tasks through /tasks/batch, one request after the other.
func (i *Installation) submitBatches(ctx context.Context, tasks []*api.TaskRequest, progress io.Writer) error {
	begun := time.Now()
	for done := 0; done < len(tasks); {
		batch := tasks[done:min(done+batchSize, len(tasks))]
		items, err := client.SubmitAll(ctx, i.Client, batch)
		if err != nil {
			return err
		}
		for n := range items {
			if items[n].Error != nil {
				return fmt.Errorf("the task %s was not accepted: %s", batch[n].ID, items[n].Error.Detail)
			}
		}
		done += len(batch)
		if len(tasks) > batchSize {
			fmt.Fprintf(progress, "%d of %d tasks submitted after %s\n", done, len(tasks),
				time.Since(begun).Round(100*time.Millisecond))
		}
	}
	return nil
}

// newTasks are n tasks that only note in the ledger that they began; set changes the nth.
func newTasks(cluster string, n int, set func(int, *api.TaskRequest)) []*api.TaskRequest {
	tasks := make([]*api.TaskRequest, n)
	for i := range tasks {
		tasks[i] = &api.TaskRequest{ID: cluster + "-" + strconv.Itoa(i),
			TaskSpec: fleet.TaskSpec{Type: workType, Cluster: cluster, Payload: work(0)}}
		set(i, tasks[i])
	}
	return tasks
}

// awaitBacklog returns when n activities wait on a task queue that nobody polls.
func awaitBacklog(ctx context.Context, c sdkclient.Client, namespace, queue string, n int) error {
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

func completedQuery(workflowType string) string {
	return fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Completed'", workflowType)
}

// awaitCompleted returns when n workflows of a type have completed, as far as visibility shows.
func awaitCompleted(ctx context.Context, c sdkclient.Client, workflowType string, n int) error {
	return advancing(ctx, fmt.Sprintf("%d completed tasks", n), n, time.Second, func(ctx context.Context) (int, error) {
		count, err := c.CountWorkflow(ctx,
			&workflowservice.CountWorkflowExecutionsRequest{Query: completedQuery(workflowType)})
		if err != nil {
			return 0, fmt.Errorf("count workflows: %w", err)
		}
		return int(count.GetCount()), nil
	})
}

// lastClose is when the last of a type's workflows closed, by the server's clock.
func lastClose(ctx context.Context, c sdkclient.Client, workflowType string) (time.Time, error) {
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
