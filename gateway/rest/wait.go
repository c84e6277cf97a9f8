package rest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// maxWait bounds the parameter wait.
const maxWait = 60 * time.Second

// pace is how soon a wait looks again: after a part of the time waited so far, within bounds.
type pace struct {
	part        time.Duration
	first, last time.Duration
}

var (
	quick = pace{part: 8, first: 10 * time.Millisecond, last: 500 * time.Millisecond}
	// calm is for waits that mostly end by a wake-up.
	calm = pace{part: 4, first: 100 * time.Millisecond, last: 2 * time.Second}
)

// Look looks once; last says that it does not look again after that.
type Look func(ctx context.Context, last bool) (found bool, err error)

// WaitUntil looks again and again until it finds its goal, fails, or the time to wait is over.
func (c *Core) WaitUntil(ctx context.Context, wait time.Duration, doing string, look Look) error {
	return c.wait(ctx, wait, doing, nil, quick, look)
}

// WaitForEnd is WaitUntil for a goal that mostly comes with a workflow's end. It looks when Temporal reports the end,
// and less often before. Temporal's report may be late, and the goal may come before the end.
func (c *Core) WaitForEnd(ctx context.Context, wait time.Duration, doing, workflowID string, look Look) error {
	if wait == 0 || workflowID == "" {
		return c.WaitUntil(ctx, wait, doing, look)
	}
	ended, leave := c.ends.join(workflowID, func(ctx context.Context) { c.Store.AwaitEnd(ctx, workflowID) })
	defer leave()
	return c.wait(ctx, wait, doing, ended, calm, look)
}

// wait looks at a pace, and at once when wake is closed.
func (c *Core) wait(
	ctx context.Context, wait time.Duration, doing string, wake <-chan struct{}, pace pace, look Look,
) error {
	start := time.Now()
	for {
		elapsed := time.Since(start)
		found, err := look(ctx, elapsed >= wait)
		if found || err != nil || elapsed >= wait {
			return err
		}
		elapsed = time.Since(start)
		next := min(max(elapsed/pace.part, pace.first), pace.last)
		timer := time.NewTimer(max(0, min(next, wait-elapsed)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return c.Answer(ctx.Err(), doing, protocol.CodeInternal)
		case <-wake:
			wake, pace = nil, quick
		case <-timer.C:
		}
		timer.Stop()
	}
}

// ParseWait reads the parameter wait: huma takes a named integer type such as api.Duration for a number.
func ParseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := api.ParseDuration(text)
	if err == nil && (wait < 0 || wait > maxWait) {
		err = fmt.Errorf("must be between 0s and %s", maxWait)
	}
	if err != nil {
		return 0, Invalid("query.wait", err)
	}
	return wait, nil
}

// endPolls are long polls for the ends of workflows: one for each, however many wait for it.
type endPolls struct {
	mu sync.Mutex
	of map[string]*endPoll // by workflow id
}

type endPoll struct {
	done    chan struct{} // closed when the poll has returned
	waiting int
	stop    context.CancelFunc
}

// join returns a channel that closes when the poll for a workflow returns. The caller calls leave when it no longer
// waits.
func (e *endPolls) join(workflowID string, poll func(context.Context)) (done <-chan struct{}, leave func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.of[workflowID]
	if p == nil {
		//nolint:forbidigo // the poll is of all that wait, not of the first
		ctx, stop := context.WithCancel(context.Background())
		p = &endPoll{done: make(chan struct{}), stop: stop}
		e.of[workflowID] = p
		go func() {
			poll(ctx)
			e.mu.Lock()
			defer e.mu.Unlock()
			e.forgetLocked(workflowID, p)
			close(p.done)
		}()
	}
	p.waiting++
	return p.done, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if p.waiting--; p.waiting == 0 {
			e.forgetLocked(workflowID, p)
			p.stop()
		}
	}
}

func (e *endPolls) forgetLocked(workflowID string, p *endPoll) {
	if e.of[workflowID] == p {
		delete(e.of, workflowID)
	}
}
