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

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// side is one of the two systems that are compared.
type side interface {
	// Name heads its column.
	Name() string
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
	api      *client.Client
	temporal sdkclient.Client // only to read when tasks closed
	cluster  string
}

func (m mainstay) Name() string { return "Mainstay" }

func (m mainstay) Submit(ctx context.Context) (string, error) {
	task, err := m.api.Tasks.Submit(ctx, &api.TaskRequest{TaskSpec: fleet.TaskSpec{Type: taskType, Cluster: m.cluster}})
	if err != nil {
		return "", err
	}
	return task.ID, nil
}

func (m mainstay) Begun(ctx context.Context, id string) (began, closed time.Time, err error) {
	var state contract.TaskState
	if closed, err = outcome(ctx, m.temporal, contract.TaskWorkflowID(id), &state); err != nil {
		return began, closed, err
	}
	var at int64
	err = json.Unmarshal(state.Result, &at)
	return time.Unix(0, at), closed, err
}

// inTurns measures each side once in each round. None always goes first.
func inTurns(rounds, sides int, measure func(round, side int) error) error {
	for round := range rounds {
		for turn := range sides {
			if err := measure(round+1, (turn+round)%sides); err != nil {
				return err
			}
		}
	}
	return nil
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
		return 0, fmt.Errorf("%s: submit: %w", s.Name(), err)
	}
	if err := eachOf(ctx, n, 4, func(ctx context.Context, i int) (err error) {
		_, closed[i], err = s.Begun(ctx, ids[i])
		return err
	}); err != nil {
		return 0, fmt.Errorf("%s: wait: %w", s.Name(), err)
	}
	first, last := slices.MinFunc(submitted, time.Time.Compare), slices.MaxFunc(closed, time.Time.Compare)
	return float64(n) / last.Sub(first).Seconds(), nil
}

// dispatched is one task that was submitted at a steady rate.
type dispatched struct{ submitted, acknowledged, began time.Time }

// dispatch submits n tasks at a steady rate, well below what the side can do, and returns their times.
func dispatch(ctx context.Context, s side, n int, every time.Duration) ([]dispatched, error) {
	tasks, ids := make([]dispatched, n), make([]string, n)
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
			tasks[i].acknowledged = time.Now()
			return err
		})
	}
	if err := submissions.Wait(); err != nil {
		return nil, fmt.Errorf("%s: submit: %w", s.Name(), err)
	}
	if err := eachOf(ctx, n, 4, func(ctx context.Context, i int) (err error) {
		tasks[i].began, _, err = s.Begun(ctx, ids[i])
		return err
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	return tasks, nil
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
)

// bare is plain Temporal: one workflow with one activity for each task, run by an SDK worker in this process.
type bare struct {
	name, queue string
	client      sdkclient.Client
	worker      sdkworker.Worker
}

// newBare starts the worker. Its pollers are as many as Mainstay's, its other settings the SDK's defaults, eager
// activities among them.
func newBare(c sdkclient.Client, name, queue string, activityPollers int) (*bare, error) {
	w, err := startBare(c, queue, sdkworker.Options{MaxConcurrentWorkflowTaskPollers: bareWorkflowPollers,
		MaxConcurrentActivityTaskPollers: activityPollers})
	return &bare{name, queue, c, w}, err
}

// startBare runs a worker. What its options leave out, workflows or activities, it does not run.
func startBare(c sdkclient.Client, queue string, o sdkworker.Options) (sdkworker.Worker, error) {
	w := sdkworker.New(c, queue, o)
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

// startBareWorkflows runs workflows, the activities of which wait.
func startBareWorkflows(c sdkclient.Client) (sdkworker.Worker, error) {
	return startBare(c, bareQueue, sdkworker.Options{MaxConcurrentWorkflowTaskPollers: bareWorkflowPollers,
		LocalActivityWorkerOnly: true})
}

// startMany starts n tasks, the first of them with this number.
func startMany(ctx context.Context, c sdkclient.Client, first, n int) error {
	return eachOf(ctx, n, 32, func(ctx context.Context, i int) error { // as many as the gateway uses for a batch
		return (&bare{client: c, queue: bareQueue}).start(ctx, "bare/"+strconv.Itoa(first+i))
	})
}

// start starts a task.
func (b *bare) start(ctx context.Context, id string) error {
	_, err := b.client.ExecuteWorkflow(ctx, sdkclient.StartWorkflowOptions{ID: id, TaskQueue: b.queue}, bareWorkflow)
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
