// Package bench measures Mainstay beside bare Temporal. Both sides do the same work on the same server in one run, in
// turns, so that a slow minute of the machine hits both; what counts is the ratio.
package bench

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Side is one of the two systems that are compared.
type Side interface {
	// Name heads its column.
	Name() string
	// Submit starts one task and returns its id when the task is acknowledged.
	Submit(ctx context.Context) (string, error)
	// Begun waits for a task's end and returns when its handler began and when the task was closed.
	Begun(ctx context.Context, id string) (began, closed time.Time, err error)
}

// submission is one task of a round.
type submission struct {
	id string
	at time.Time // just before it was submitted
}

// throughput submits n tasks with the given number of clients as fast as the side takes them and returns the tasks per
// second from the first submission to the last close, by the server's timestamps.
func throughput(ctx context.Context, s Side, n, clients int) (float64, error) {
	tasks := make([]submission, n)
	if err := eachOf(n, clients, func(i int) error {
		at := time.Now()
		id, err := s.Submit(ctx)
		tasks[i] = submission{id, at}
		return err
	}); err != nil {
		return 0, fmt.Errorf("%s: submit: %w", s.Name(), err)
	}
	ends := make([]time.Time, n)
	if err := eachOf(n, 4, func(i int) error {
		_, closed, err := s.Begun(ctx, tasks[i].id)
		ends[i] = closed
		return err
	}); err != nil {
		return 0, fmt.Errorf("%s: wait: %w", s.Name(), err)
	}
	first, last := tasks[0].at, ends[0]
	for i := range tasks {
		if tasks[i].at.Before(first) {
			first = tasks[i].at
		}
		if ends[i].After(last) {
			last = ends[i]
		}
	}
	return float64(n) / last.Sub(first).Seconds(), nil
}

// dispatched is one task that was submitted at a steady rate.
type dispatched struct{ submitted, acknowledged, began time.Time }

// dispatch submits n tasks at a steady rate, well below what the side can do, and returns their times.
func dispatch(ctx context.Context, s Side, n int, every time.Duration) ([]dispatched, error) {
	tasks, ids, errs := make([]dispatched, n), make([]string, n), make([]error, n)
	var wg sync.WaitGroup
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := range n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		wg.Go(func() {
			tasks[i].submitted = time.Now()
			ids[i], errs[i] = s.Submit(ctx)
			tasks[i].acknowledged = time.Now()
		})
	}
	wg.Wait()
	err := eachOf(n, 4, func(i int) (err error) {
		if errs[i] != nil {
			return fmt.Errorf("submit: %w", errs[i])
		}
		tasks[i].began, _, err = s.Begun(ctx, ids[i])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	return tasks, nil
}

// latency is the times of dispatch from just before the submission to the handler's first instruction.
func latency(ctx context.Context, s Side, n int, every time.Duration) ([]time.Duration, error) {
	tasks, err := dispatch(ctx, s, n, every)
	times := make([]time.Duration, len(tasks))
	for i, t := range tasks {
		times[i] = t.began.Sub(t.submitted)
	}
	return times, err
}

// eachOf calls do for 0…n-1 from the given number of goroutines and returns the first error.
func eachOf(n, goroutines int, do func(int) error) error {
	next := make(chan int)
	errs := make(chan error, goroutines)
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			failed := false
			for i := range next {
				if failed {
					continue
				}
				if err := do(i); err != nil {
					errs <- err
					failed = true
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}
