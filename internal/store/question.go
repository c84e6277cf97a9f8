package store

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/backoff"
)

// Question is a question to who polls a queue, as a hub or a spawner.
type Question struct {
	Queue   string
	ID      string // unique
	Summary string
	Begin   time.Duration // how long it may wait to be taken
	Answer  time.Duration // how long the answer may take then
}

// removeLimit bounds one try to remove a question, and removeLong all of them.
const removeLimit, removeLong = 4500 * time.Millisecond, time.Minute

// Ask puts a question through an activity without a workflow, so that who asks and who answers need not reach each
// other. answered is false when nobody answers in time. Nothing of it is kept in Temporal.
func Ask[In, Out any](
	ctx context.Context, s Store, activity contract.Activity[In, Out], q Question, in In,
) (answer Out, answered bool, err error) {
	handle, err := s.Client.ExecuteActivity(ctx, client.StartActivityOptions{
		ID:                     q.ID,
		TaskQueue:              q.Queue,
		ScheduleToStartTimeout: q.Begin,
		StartToCloseTimeout:    q.Answer,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: q.Summary,
	}, activity.Name, in)
	if err != nil {
		return answer, false, err
	}
	defer s.removeQuestion(ctx, q.ID, handle.GetRunID())
	err = handle.Get(ctx, &answer)
	if _, late := errors.AsType[*temporal.TimeoutError](err); late {
		return answer, false, nil
	}
	return answer, err == nil, err
}

// removeQuestion removes a question from Temporal, because logs above all must not stay there. It does so even if the
// client has gone. After a failure it tries again while the answer goes out; if it fails for long, the question stays
// until Temporal's retention ends.
func (s Store) removeQuestion(ctx context.Context, id, run string) {
	ctx = context.WithoutCancel(ctx)
	remove := func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, removeLimit)
		defer cancel()
		_, err := s.Client.WorkflowService().DeleteActivityExecution(ctx,
			&workflowservice.DeleteActivityExecutionRequest{Namespace: s.Namespace, ActivityId: id, RunId: run})
		return err == nil || KindOf(err) == NotFound
	}
	if remove(ctx) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(ctx, removeLong)
		defer cancel()
		for again := (backoff.Backoff{First: 200 * time.Millisecond, Limit: 5 * time.Second}); ctx.Err() == nil; {
			if again.Pause(ctx); remove(ctx) {
				return
			}
		}
	}()
}
