package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// outageWork is how long tasks go on that live through an outage: longer than everything that could have them run
// again, an attempt's backstop of 60 s and an outage of 20 s among it.
const outageWork = 100 * time.Second

// outage gives every agent a task, lets parts of the control plane die and come back, and counts attempts that were run
// again and tasks that did not complete.
func (c *crew) outage(ctx context.Context, row *Row, progress io.Writer, fault func(context.Context) error) error {
	tasks, err := c.submit(ctx, len(c.ids), outageWork)
	if err != nil {
		return err
	}
	if err := c.ledger.await(ctx, "work on all agents", settleLimit,
		func(entries []ledgerEntry) bool { return allBegun(entries, tasks) }); err != nil {
		return err
	}
	fmt.Fprintf(progress, "%s: %d agents at work\n", row.Fault, len(c.ids))
	row.Faults++
	begun := time.Now()
	if err := fault(ctx); err != nil {
		return err
	}
	fmt.Fprintf(progress, "%s: back after %s\n", row.Fault, time.Since(begun).Round(100*time.Millisecond))
	if err := c.awaitIdle(ctx, outageWork+2*moveLimit); err != nil {
		return err
	}
	var completed atomic.Int64
	if err := eachOf(len(tasks), 8, func(i int) error {
		var task struct {
			Status string `json:"status"`
		}
		err := c.call(ctx, http.MethodGet, "/tasks/"+tasks[i]+"?wait=30s", nil, &task)
		if task.Status == "completed" {
			completed.Add(1)
		}
		return err
	}); err != nil {
		return err
	}
	if err := c.ledger.more(); err != nil {
		return err
	}
	row.Tasks += len(tasks)
	row.Lost += len(tasks) - int(completed.Load())
	row.Rerun += reruns(c.ledger.entries, tasks)
	return nil
}

// reruns counts the begins of tasks beyond the first.
func reruns(entries []ledgerEntry, tasks []string) int {
	begins := make(map[string]int, len(tasks))
	for _, task := range tasks {
		begins[task] = 0
	}
	again := 0
	for _, e := range entries {
		if n, ours := begins[e.Task]; ours && e.Event == ledgerBegin {
			if n > 0 {
				again++
			}
			begins[e.Task] = n + 1
		}
	}
	return again
}

// away kills the control plane with its embedded Temporal, waits, and starts it again on its data.
func (i *Installation) away(ctx context.Context, d time.Duration) error {
	i.KillPlane()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return ctx.Err()
	}
	return i.RestartPlane(ctx)
}
