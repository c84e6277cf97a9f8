package task

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/diagnosis"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// waitForTask returns the task, with parts, as soon as it is settled, or as it stands when wait is over. Its first and
// its last look are its own, the others are shared by all that wait for the task.
func (h *Handlers) waitForTask(
	ctx context.Context, id string, wait time.Duration, parts ...string,
) (task api.Task, err error) {
	named, err := rest.OwnTask(ctx, id)
	if err != nil {
		return task, err
	}
	workflowID, step := contract.Locate(named)
	if step != "" {
		workflowID = "" // a run does not end with one of its steps
	}
	start, first := time.Now(), true
	err = h.WaitForEnd(ctx, wait, "wait for a task", workflowID, func(ctx context.Context, last bool) (bool, error) {
		age := min(time.Since(start)/16, maxLookAge)
		if first || last {
			age = 0
		}
		first = false
		found, err := h.describeSince(ctx, id, age)
		if err != nil || !last && !found.Status.Settled() {
			return false, err
		}
		if task, err = h.complete(ctx, found); err == nil {
			err = h.include(ctx, &task, &found, parts)
		}
		return true, err
	})
	return task, err
}

// task returns a task as it stands.
func (h *Handlers) task(ctx context.Context, id string) (api.Task, error) {
	return h.waitForTask(ctx, id, 0)
}

// describeTask is a task as Temporal itself knows it.
func (h *Handlers) describeTask(ctx context.Context, id string) (store.Task, error) {
	return h.describeSince(ctx, id, 0)
}

// describeSince is describeTask by a look that another request may have taken, up to age ago.
func (h *Handlers) describeSince(ctx context.Context, id string, age time.Duration) (store.Task, error) {
	id, err := rest.OwnTask(ctx, id)
	if err != nil {
		return store.Task{}, err
	}
	if strings.Contains(id, array.Mark) { // a worker may read the whole history of the array for it
		if err := httpapi.Reserve(ctx, endTakes); err != nil {
			return store.Task{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	task, err := h.looks.at(ctx, id, age, h.Store.Tasks().Describe)
	if err != nil {
		return store.Task{}, h.Answer(err, "describe a task", protocol.CodeUnknownTask)
	}
	if !rest.Sees(ctx, task.Tenant) {
		return store.Task{}, rest.Unknown(protocol.CodeUnknownTask)
	}
	return task, nil
}

// endTakes is about what reading a task's end takes at most, in bytes: its result.
const endTakes = 2 << 20

// complete adds to a described task what only the workflow, its history or its cluster knows.
func (h *Handlers) complete(ctx context.Context, task store.Task) (api.Task, error) {
	if err := httpapi.Reserve(ctx, min(task.HistoryBytes, endTakes)); err != nil {
		return task.Task, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	if task.Status.Final() {
		err := h.Store.Tasks().Complete(ctx, &task)
		task.ShowRecovery(time.Now())
		return task.Task, h.Answer(err, "read a task's end", protocol.CodeUnknownTask)
	}
	queryCtx, done := context.WithTimeout(ctx, rest.QueryTimeout)
	defer done()
	if err := h.Store.Tasks().Complete(queryCtx, &task); err != nil {
		h.Logger.Debug("a task's workflow did not answer", zap.String("task", task.ID), zap.Error(err))
		if !task.TakeDelivery() || task.Status != api.TaskRunning {
			task.Why = "no worker answered for the task; only what Temporal itself knows is shown"
		}
		return task.Task, nil
	}
	task.ShowRecovery(time.Now())
	if task.Status == api.TaskReview {
		task.Why = diagnosis.WhyReview(task.Why)
	}
	alone := []store.Task{task}
	h.Explain(ctx, alone)
	return alone[0].Task, nil
}

// Values of the parameter include.
const (
	includePayload = "payload"
	includeHistory = "history"
)

// include adds the requested parts to the task.
func (h *Handlers) include(ctx context.Context, task *api.Task, found *store.Task, parts []string) error {
	if len(parts) == 0 {
		return nil
	}
	if err := httpapi.Reserve(ctx, min(found.HistoryBytes, store.ResultsTake)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	if slices.Contains(parts, includePayload) {
		spec, err := h.Store.Tasks().Submitted(ctx, task)
		if err != nil {
			return h.Answer(err, "read a task's payload", protocol.CodeUnknownTask)
		}
		if spec != nil {
			task.Payload, spec.Payload, task.Spec = spec.Payload, nil, spec
		}
	}
	if !slices.Contains(parts, includeHistory) {
		return nil
	}
	var err error
	if task.History, err = h.Store.Tasks().History(ctx, task, found.Delivery); err == nil {
		task.Reruns, err = h.Store.Tasks().Reruns(ctx, task.ID)
	}
	return h.Answer(err, "read a task's history", protocol.CodeUnknownTask)
}

// maxLookAge is how old a look at a task may be that a waiting request takes from another.
const maxLookAge = 250 * time.Millisecond

// looks shares the looks at tasks among waiting requests, so that many requests for one task cost Temporal as much as
// one.
type looks struct {
	mu    sync.Mutex
	tasks map[string]*look // by full id; only recent ones
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

// at returns the result of a look that began at most age ago or is under way; without one it takes a look with
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
