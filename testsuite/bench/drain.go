package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// drainWatch is how often a drain is looked at. Times come from its record and from the ledger.
const drainWatch = 200 * time.Millisecond

// DrainPlan is how many agents to drain, and how.
type DrainPlan struct {
	Agents      int // drained
	Rest        int // that stay, and take what is submitted meanwhile
	MaxParallel int
	Work        time.Duration // how long each task goes on
}

// DefaultDrainPlan takes about a minute on two cores.
func DefaultDrainPlan() DrainPlan {
	return DrainPlan{Agents: 50, Rest: 5, MaxParallel: 10, Work: 10 * time.Second}
}

// Drained is what came of a drain.
type Drained struct {
	Agents, MaxParallel int
	// Total is from the request to when the last agent was out of service.
	Total time.Duration
	// Tails are from the end of an agent's last work, or from when nothing new arrived at it, to when it was out of
	// service.
	Tails []time.Duration
	// Tasks ran on the agents when the drain began, or came meanwhile.
	Tasks int
	Rerun int // attempts that were begun again
	Lost  int // tasks that did not complete
	Late  int // attempts begun on an agent after the drain said that nothing arrives there any more
	Moved int // attempts taken off an agent at its deadline
	Undue int // agents that did not end in maintenance
}

// Met reports whether nothing was repeated, lost or late.
func (d *Drained) Met() bool { return d.Rerun+d.Lost+d.Late+d.Moved+d.Undue == 0 }

// MeasureDrain gives every agent work, drains most of them while more work comes, and counts from outside, by what the
// handlers wrote, what was repeated.
func MeasureDrain(ctx context.Context, p DrainPlan, i *Installation, progress io.Writer) (*Drained, error) {
	c, err := startCrew(ctx, i, "bench", p.Agents+p.Rest, fleet.ActiveActive, fleet.Idempotent)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	tasks, err := c.submit(ctx, len(c.ids), p.Work)
	if err != nil {
		return nil, err
	}
	if err := c.ledger.await(ctx, "work on all agents", settleLimit,
		func(entries []ledgerEntry) bool { return allBegun(entries, tasks) }); err != nil {
		return nil, err
	}
	drained := c.ids[:p.Agents]
	var record fleet.DrainRecord
	request := map[string]any{"agents": drained, "max_parallel": p.MaxParallel, "deadline": "5m", "reason": "benchmark"}
	if err := c.call(ctx, http.MethodPost, "/clusters/"+c.cluster+"/drain", request, &record); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "drain of %d agents, %d at a time, with %d tasks at work\n", p.Agents, p.MaxParallel,
		len(tasks))
	more, err := c.submit(ctx, p.Agents, p.Work/10)
	if err != nil {
		return nil, err
	}
	tasks = append(tasks, more...)
	if err := c.awaitDrain(ctx, &record, 2*time.Duration(p.Agents)*p.Work+settleLimit); err != nil {
		return nil, err
	}
	result := &Drained{Agents: p.Agents, MaxParallel: p.MaxParallel, Tasks: len(tasks),
		Total: record.CompletedAt.Sub(record.RequestedAt)}
	if err := c.awaitIdle(ctx, p.Work+settleLimit); err != nil {
		return nil, err
	}
	var completed atomic.Int64
	if err := eachOf(len(tasks), 8, func(n int) error {
		var task struct {
			Status fleet.TaskStatus `json:"status"`
		}
		err := c.call(ctx, http.MethodGet, "/tasks/"+tasks[n]+"?wait=30s", nil, &task)
		if task.Status == fleet.TaskCompleted {
			completed.Add(1)
		}
		return err
	}); err != nil {
		return nil, err
	}
	if err := c.ledger.more(); err != nil {
		return nil, err
	}
	result.Lost, result.Rerun = len(tasks)-int(completed.Load()), reruns(c.ledger.entries, tasks)
	result.count(&record, c.ledger.entries)
	return result, nil
}

// awaitDrain waits until a drain has ended.
func (c *crew) awaitDrain(ctx context.Context, record *fleet.DrainRecord, limit time.Duration) error {
	id := record.ID
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("after %s the drain has not ended", limit))
	defer cancel()
	tick := time.NewTicker(drainWatch)
	defer tick.Stop()
	for {
		*record = fleet.DrainRecord{}
		if err := c.call(ctx, http.MethodGet, "/drains/"+id, nil, record); err != nil {
			return err
		}
		if record.CompletedAt != nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// count takes from the record and the ledger how each agent's drain ended.
func (d *Drained) count(record *fleet.DrainRecord, entries []ledgerEntry) {
	for i := range record.Agents {
		g := &record.Agents[i]
		d.Moved += g.Moved
		if g.Status != fleet.DrainCompleted || g.AcknowledgedAt == nil || g.CompletedAt == nil {
			d.Undue++
			continue
		}
		from := *g.AcknowledgedAt
		for _, e := range entries {
			if e.Agent != g.AgentID {
				continue
			}
			switch {
			case e.Event == ledgerBegin && e.time().After(*g.AcknowledgedAt):
				d.Late++
			case slices.Contains([]string{ledgerEnd, ledgerStop}, e.Event) && e.time().After(from):
				from = e.time()
			}
		}
		d.Tails = append(d.Tails, max(0, g.CompletedAt.Sub(from)))
	}
}
