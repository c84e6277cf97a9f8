package task

import (
	"context"
	"sync"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/store"
)

// maxLookAge is how old a look at a task may be that a waiting request takes from another.
const maxLookAge = 250 * time.Millisecond

// looks are those that requests take at tasks while they wait, so that many that wait for one task cost Temporal as
// much as one.
type looks struct {
	mu    sync.Mutex
	tasks map[string]*look // by full id; those of the last moments
}

// look is one look at a task.
type look struct {
	began time.Time
	done  chan struct{} // closed when task and err are there
	task  store.Task
	err   error
}

// over reports whether the look has found something.
func (k *look) over() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// at is what a look that began at most age ago found, or one that is under way; without one it takes a look with
// describe.
func (l *looks) at(
	ctx context.Context, id string, age time.Duration, describe func(context.Context, string) (store.Task, error),
) (store.Task, error) {
	if age == 0 {
		return describe(ctx, id)
	}
	now := time.Now()
	l.mu.Lock()
	known := l.tasks[id]
	if known == nil || known.over() && now.Sub(known.began) > age {
		known = &look{began: now, done: make(chan struct{})}
		l.tasks[id] = known
		go func() {
			defer time.AfterFunc(maxLookAge, func() { l.forget(id, known) })
			defer close(known.done)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rest.CallTimeout) // others wait for it too
			defer cancel()
			known.task, known.err = describe(ctx, id)
		}()
	}
	l.mu.Unlock()
	select {
	case <-known.done:
		return known.task, known.err
	case <-ctx.Done():
		return store.Task{}, ctx.Err()
	}
}

func (l *looks) forget(id string, old *look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tasks[id] == old {
		delete(l.tasks, id)
	}
}
