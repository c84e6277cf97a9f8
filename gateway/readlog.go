package gateway

import (
	"context"
	"time"

	"github.com/google/uuid"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// readLog asks the attempt's hub for lines. A hub that does not answer is answered as Gone: another may have the attempt
// by the next look.
func (g *Gateway) readLog(ctx context.Context, task string, attempt *fleet.Attempt, after int64, wait time.Duration) (contract.ReadLogResult, error) {
	if attempt.Hub == "" {
		return contract.ReadLogResult{Gone: true}, nil
	}
	wait = max(0, wait)
	read, answered, err := ask(ctx, g, contract.ReadLogActivity, hubQuestion{
		hub: attempt.Hub, id: contract.ReadLogID(task, uuid.NewString()), summary: "read the log of task " + task, wait: wait,
	}, contract.ReadLogInput{TaskID: task, Attempt: attempt.Number, After: after, Wait: fleet.Duration(wait)})
	if !answered {
		return contract.ReadLogResult{Gone: true}, err
	}
	return read, err
}
