package task

import (
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows"
)

// awaitStart waits until the task may be delivered for the first time, or is cancelled.
func (r *run) awaitStart(ctx workflow.Context) {
	at := r.in.Spec.StartAt
	wait := at.Sub(workflow.Now(ctx))
	if r.carry.Deliveries > 0 || wait <= 0 {
		return
	}
	r.next, r.why = &at, fleet.StartsAt(at)
	_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(wait, r.why), func() bool { return r.cancel != nil })
	r.next, r.why = nil, ""
	r.heedCancellation(ctx)
}
