package delivery

import (
	"strings"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows"
)

// memoCauseBytes bounds the cause of a dead letter in the memo, which lists carry; the state has all of it.
const memoCauseBytes = 300

// keepDeadLetter keeps the task until a person retries, discards or cancels it, or its retention ends. It returns a
// final status when that ended the task.
func (d *Delivery) keepDeadLetter(ctx workflow.Context, cause string) (fleet.TaskStatus, string) {
	retention := d.task.DeadLetterRetention.Or(fleet.DefaultDeadLetterRetention)
	since := workflow.Now(ctx).UTC()
	d.dead = &fleet.DeadLetter{Since: since, Until: since.Add(retention), Cause: cause}
	d.carrier.Mark(ctx, fleet.TaskDeadLetter)
	listed := *d.dead
	listed.Cause = shorten(cause, memoCauseBytes)
	d.carrier.Note(ctx, contract.MemoDeadLetter, listed)
	d.carrier.Held(ctx)

	decided, _ := workflow.AwaitWithOptions(ctx, workflows.Named(retention, "dead letter, kept for a retry"),
		func() bool { return d.retry != nil || d.discard != nil || d.cancel != nil })
	switch {
	case !decided && ctx.Err() == nil:
		return fleet.TaskFailed, "dead letter, not retried within its retention: " + cause
	case d.discard != nil:
		return fleet.TaskFailed, "discarded: " + d.discard.Reason
	case d.retry != nil:
		why := "retried by hand"
		if d.retry.Reason != "" {
			why += ": " + d.retry.Reason
		}
		d.restart(ctx, why)
	}
	return "", ""
}

func (d *Delivery) mayDiscard(req contract.DiscardRequest) error {
	if req.Reason == "" {
		return workflows.Refuse("a dead letter is discarded with a reason")
	}
	return d.refuseDeadLetter("discarded")
}

// standing is a status in words. The workflow does not know whether an agent has begun a queued task.
func standing(s fleet.TaskStatus) string {
	if s == fleet.TaskQueued {
		return "queued or running"
	}
	return string(s)
}

// refuseDeadLetter rejects an update unless the task is an undecided dead letter.
func (d *Delivery) refuseDeadLetter(done string) error {
	switch {
	case d.status != fleet.TaskDeadLetter:
		return workflows.Refuse("only a dead letter can be %s; this task is %s", done, standing(d.status))
	case d.retry != nil:
		return workflows.Refuse("the dead letter is being retried")
	case d.discard != nil:
		return workflows.Refuse("the dead letter is being discarded")
	case d.cancel != nil:
		return workflows.Refuse("the task is being cancelled")
	}
	return nil
}

// shorten cuts the end of a text.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
