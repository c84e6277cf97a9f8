package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/protocol"
)

const (
	// hubAnswer is how long a hub has to take a question.
	hubAnswer = 3 * time.Second
	// hubMargin is how much longer than asked a reading may take.
	hubMargin = 10 * time.Second
)

// readLog asks the attempt's hub for lines, through an activity on the hub's own queue. A hub that does not answer is
// answered as Gone: another may have the attempt by the next look.
func (g *Gateway) readLog(ctx context.Context, task string, attempt *fleet.Attempt, after int64, wait time.Duration) (contract.ReadLogResult, error) {
	result := contract.ReadLogResult{Gone: true}
	if attempt.Hub == "" {
		return result, nil
	}
	wait = max(0, wait)
	ctx, cancel := context.WithTimeout(ctx, hubAnswer+wait+hubMargin)
	defer cancel()
	id := contract.ReadLogID(task, uuid.NewString())
	handle, err := g.client.ExecuteActivity(ctx, client.StartActivityOptions{
		ID: id, TaskQueue: contract.HubQueue(attempt.Hub), ScheduleToStartTimeout: hubAnswer, StartToCloseTimeout: wait + hubMargin,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: "read the log of task " + task,
	}, contract.ReadLogActivity, contract.ReadLogInput{TaskID: task, Attempt: attempt.Number, After: after, Wait: fleet.Duration(wait)})
	if unsupported(err) {
		return result, notSupported()
	}
	if err != nil {
		return result, g.answer(err, "ask a hub for a log", protocol.CodeInternal)
	}
	defer g.tidy(ctx, id, handle.GetRunID())
	read := contract.ReadLogResult{}
	err = handle.Get(ctx, &read)
	var late *temporal.TimeoutError
	switch {
	case err == nil:
		return read, nil
	case errors.As(err, &late):
		return result, nil
	}
	return result, g.answer(err, "read a log", protocol.CodeInternal)
}
