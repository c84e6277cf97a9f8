package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	sdkclient "go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"mainstay.dev/mainstay/internal/config"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// side is one of the two systems that are compared.
type side interface {
	// Submit starts one task and returns its id when the task is acknowledged.
	Submit(ctx context.Context) (string, error)
	// Begun waits for a task's end and returns when its handler began and when the task was closed.
	Begun(ctx context.Context, id string) (began, closed time.Time, err error)
}

// taskType is the type of the benchmark's tasks.
const taskType = "bench"

// handle is the benchmark's handler: it answers when it began, in nanoseconds since 1970.
func handle(context.Context, *agent.Task) (any, error) { return time.Now().UnixNano(), nil }

// mainstay is the whole way of a task through Mainstay: REST, workflow, lane, hub, an agent in another process, and
// back.
type mainstay struct {
	*Installation
	cluster, kind string
}

// Submit implements side.
func (m mainstay) Submit(ctx context.Context) (string, error) {
	task, err := m.Tasks.Submit(ctx, &api.TaskRequest{TaskSpec: api.TaskSpec{Type: m.kind, Cluster: m.cluster}})
	if err != nil {
		return "", err
	}
	return task.ID, nil
}

// Begun implements side.
func (m mainstay) Begun(ctx context.Context, id string) (began, closed time.Time, err error) {
	var state contract.TaskState
	if closed, err = outcome(ctx, m.sdk, contract.TaskWorkflowID(id), &state); err != nil {
		return began, closed, err
	}
	var at int64
	err = json.Unmarshal(state.Result, &at)
	return time.Unix(0, at), closed, err
}

// throughput submits n tasks with the given number of clients as fast as the side takes them and returns the tasks per
// second from the first submission to the last close, by the server's timestamps.
func throughput(ctx context.Context, s side, n, clients int) (float64, error) {
	ids, submitted, closed := make([]string, n), make([]time.Time, n), make([]time.Time, n)
	if err := eachOf(ctx, n, clients, func(ctx context.Context, i int) (err error) {
		submitted[i] = time.Now()
		ids[i], err = s.Submit(ctx)
		return err
	}); err != nil {
		return 0, fmt.Errorf("submit: %w", err)
	}
	if err := eachOf(ctx, n, 4, func(ctx context.Context, i int) (err error) {
		_, closed[i], err = s.Begun(ctx, ids[i])
		return err
	}); err != nil {
		return 0, fmt.Errorf("wait: %w", err)
	}
	first, last := slices.MinFunc(submitted, time.Time.Compare), slices.MaxFunc(closed, time.Time.Compare)
	return float64(n) / last.Sub(first).Seconds(), nil
}

// dispatched are tasks that were submitted at a steady rate.
type dispatched []struct{ submitted, began time.Time }

// dispatch submits n tasks at a steady rate, well below what the side can do, and returns their times.
func dispatch(ctx context.Context, s side, n int, every time.Duration) (dispatched, error) {
	tasks, ids := make(dispatched, n), make([]string, n)
	var submissions errgroup.Group
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := range n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		submissions.Go(func() (err error) {
			tasks[i].submitted = time.Now()
			ids[i], err = s.Submit(ctx)
			return err
		})
	}
	if err := submissions.Wait(); err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	return tasks, eachOf(ctx, n, 4, func(ctx context.Context, i int) (err error) {
		tasks[i].began, _, err = s.Begun(ctx, ids[i])
		return err
	})
}

// waits are the times from just before the submissions to the first instructions.
func (d dispatched) waits() []time.Duration {
	times := make([]time.Duration, len(d))
	for n, t := range d {
		times[n] = t.began.Sub(t.submitted)
	}
	return times
}

// Times sum up a set of durations, in milliseconds.
type Times struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// timesOf takes the nearest-rank percentiles.
func timesOf(all []time.Duration) Times {
	if len(all) == 0 {
		return Times{}
	}
	s := slices.Sorted(slices.Values(all))
	rank := func(p float64) float64 {
		i := int(p*float64(len(s))+0.999999) - 1
		return milliseconds(s[min(max(i, 0), len(s)-1)])
	}
	return Times{Count: len(s), P50: rank(0.50), P99: rank(0.99), Max: rank(1)}
}

// median of an odd or even number of values; 0 of none.
func median(values []float64) float64 {
	s, n := slices.Sorted(slices.Values(values)), len(values)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// medianRatio is the median of a[i]/b[i]: rounds that were close in time are compared, so that a slow minute of the
// machine counts less.
func medianRatio(a, b []float64) float64 {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = a[i] / b[i]
	}
	return median(ratios)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

const (
	bareQueue    = "bench-bare"
	bareWorkflow = "BareTask"
	bareActivity = "BareActivity"
	// bareWorkflowPollers are as many as Mainstay's worker has.
	bareWorkflowPollers = 8
	// bareStarts are how many workflows are started at a time, as many as the gateway used for a batch.
	bareStarts = 32
)

// bare is plain Temporal: one workflow with one activity for each task, run by an SDK worker in this process.
type bare struct {
	sdk             sdkclient.Client
	queue, workflow string
}

// startBare runs a bare side. Its pollers are as many as Mainstay's, its other settings the SDK's defaults, eager
// activities among them.
func startBare(i *Installation, queue string) (bare, error) {
	stop, err := startWorker(i.sdk, queue, sdkworker.Options{MaxConcurrentWorkflowTaskPollers: bareWorkflowPollers,
		MaxConcurrentActivityTaskPollers: config.Default().Hub.LanePollers})
	i.atStop(stop)
	return bare{i.sdk, queue, bareWorkflow}, err
}

// startBareQueue runs a bare side whose activities wait on the queue, as nobody runs them.
func startBareQueue(i *Installation) (bare, error) {
	stop, err := startWorker(i.sdk, bareQueue, sdkworker.Options{LocalActivityWorkerOnly: true,
		MaxConcurrentWorkflowTaskPollers: bareWorkflowPollers})
	i.atStop(stop)
	return bare{i.sdk, bareQueue, bareWorkflow}, err
}

// startWorker runs a worker, without the workflows or activities that its options leave out.
func startWorker(c sdkclient.Client, queue string, o sdkworker.Options) (stop func(), err error) {
	w := sdkworker.New(c, queue, o)
	if !o.DisableWorkflowWorker {
		w.RegisterWorkflowWithOptions(bareSteps(1), workflow.RegisterOptions{Name: bareWorkflow})
		w.RegisterWorkflowWithOptions(bareSteps(chainSteps), workflow.RegisterOptions{Name: bareChainWorkflow})
	}
	if !o.LocalActivityWorkerOnly {
		w.RegisterActivityWithOptions(func(context.Context) (int64, error) { return time.Now().UnixNano(), nil },
			activity.RegisterOptions{Name: bareActivity})
	}
	if err := w.Start(); err != nil {
		return func() {}, fmt.Errorf("start the bare worker: %w", err)
	}
	return w.Stop, nil
}

// bareSteps is a workflow with activities, one after the other. Its result is when each began.
func bareSteps(n int) func(workflow.Context) ([]int64, error) {
	return func(ctx workflow.Context) ([]int64, error) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		steps := make([]int64, n)
		for k := range steps {
			if err := workflow.ExecuteActivity(ctx, bareActivity).Get(ctx, &steps[k]); err != nil {
				return nil, err
			}
		}
		return steps, nil
	}
}

// startMany starts n tasks, the first of them with this number.
func (b bare) startMany(ctx context.Context, first, n int) error {
	return eachOf(ctx, n, bareStarts, func(ctx context.Context, i int) error {
		return b.start(ctx, "bare/"+strconv.Itoa(first+i))
	})
}

func (b bare) start(ctx context.Context, id string) error {
	_, err := b.sdk.ExecuteWorkflow(ctx, sdkclient.StartWorkflowOptions{ID: id, TaskQueue: b.queue}, b.workflow)
	return err
}

// Submit implements side.
func (b bare) Submit(ctx context.Context) (string, error) {
	id := "bare/" + uuid.NewString()
	return id, b.start(ctx, id)
}

// Begun implements side.
func (b bare) Begun(ctx context.Context, id string) (began, closed time.Time, err error) {
	steps, closed, err := b.steps(ctx, id)
	if err != nil {
		return began, closed, err
	}
	return steps[0], closed, nil
}

func (b bare) steps(ctx context.Context, id string) (began []time.Time, closed time.Time, err error) {
	var at []int64
	closed, err = outcome(ctx, b.sdk, id, &at)
	for _, nanos := range at {
		began = append(began, time.Unix(0, nanos))
	}
	return began, closed, err
}

// outcome waits until a workflow has completed, and returns its result and when that was. It asks again and again: long
// polls on history miss a close now and then and would distort the measurement.
func outcome(ctx context.Context, c sdkclient.Client, id string, result any) (closed time.Time, err error) {
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
