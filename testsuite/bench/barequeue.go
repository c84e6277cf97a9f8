package bench

import (
	"context"
	"fmt"
	"strconv"

	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
)

// bareBacklog is plain Temporal with a queue that waits for its slots: workflows run, and their activities wait until a
// second worker takes them.
type bareBacklog struct {
	client    client.Client
	workflows sdkworker.Worker
}

func newBareBacklog(c client.Client) (*bareBacklog, error) {
	w := sdkworker.New(c, bareQueue, sdkworker.Options{MaxConcurrentWorkflowTaskPollers: bareWorkflowPollers,
		LocalActivityWorkerOnly: true})
	registerBareWorkflow(w)
	if err := w.Start(); err != nil {
		return nil, fmt.Errorf("start the bare worker of workflows: %w", err)
	}
	return &bareBacklog{c, w}, nil
}

func (b *bareBacklog) close() { b.workflows.Stop() }

// submit starts n workflows, of which first is the number of the first, from as many goroutines as the gateway uses for
// a batch.
func (b *bareBacklog) submit(ctx context.Context, first, n int) error {
	return eachOf(n, 32, func(i int) error {
		_, err := b.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "bare/" + strconv.Itoa(first+i),
			TaskQueue: bareQueue}, bareWorkflow)
		return err
	})
}

// serve runs a worker with slots for the activities until stop is called.
func (b *bareBacklog) serve(slots, pollers int) (stop func(), err error) {
	w := sdkworker.New(b.client, bareQueue, sdkworker.Options{
		DisableWorkflowWorker:              true,
		MaxConcurrentActivityExecutionSize: slots,
		MaxConcurrentActivityTaskPollers:   min(pollers, slots),
	})
	registerBareActivity(w)
	if err := w.Start(); err != nil {
		return nil, fmt.Errorf("start the bare worker of activities: %w", err)
	}
	return w.Stop, nil
}
