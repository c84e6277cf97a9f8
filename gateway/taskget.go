package gateway

import (
	"context"
	"time"

	"go.uber.org/zap"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

// waitForTask returns the task as soon as it is settled, or as it stands when wait is over. It looks again and again:
// history long polls miss a completion now and then.
func (g *Gateway) waitForTask(ctx context.Context, id string, wait time.Duration) (task api.Task, err error) {
	err = g.waitUntil(ctx, wait, "wait for a task", func(ctx context.Context, last bool) (bool, error) {
		found, err := g.describeTask(ctx, id)
		if err != nil || !last && !found.Status.Settled() {
			return false, err
		}
		task, err = g.complete(ctx, found)
		return true, err
	})
	return task, err
}

// task returns a task as it stands.
func (g *Gateway) task(ctx context.Context, id string) (api.Task, error) {
	return g.waitForTask(ctx, id, 0)
}

// describeTask is a task as Temporal itself knows it.
func (g *Gateway) describeTask(ctx context.Context, id string) (store.Task, error) {
	id, err := ownTask(ctx, id)
	if err != nil {
		return store.Task{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	task, err := g.store.Tasks().Describe(ctx, id)
	if err != nil {
		return store.Task{}, g.answer(err, "describe a task", protocol.CodeUnknownTask)
	}
	if !sees(ctx, task.Tenant) {
		return store.Task{}, unknown(protocol.CodeUnknownTask)
	}
	return task, nil
}

// complete adds to a described task what only the workflow, its history or its cluster knows.
func (g *Gateway) complete(ctx context.Context, task store.Task) (api.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if task.Status.Final() {
		err := g.store.Tasks().Complete(ctx, &task)
		return task.Task, g.answer(err, "read a task's end", protocol.CodeUnknownTask)
	}
	queryCtx, done := context.WithTimeout(ctx, queryTimeout)
	defer done()
	if err := g.store.Tasks().Complete(queryCtx, &task); err != nil {
		g.logger.Debug("a task's workflow did not answer", zap.String("task", task.ID), zap.Error(err))
		if !task.TakeDelivery() || task.Status != fleet.TaskRunning {
			task.Why = "no worker answered for the task; only what Temporal itself knows is shown"
		}
		return task.Task, nil
	}
	g.explain(ctx, &task)
	return task.Task, nil
}

// includePayload is the value of the parameter include that asks for a task's payload.
const includePayload = "payload"

// addPayload puts in what was submitted.
func (g *Gateway) addPayload(ctx context.Context, task *api.Task) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	task.Payload, err = g.store.Tasks().Payload(ctx, task)
	return g.answer(err, "read a task's payload", protocol.CodeUnknownTask)
}
