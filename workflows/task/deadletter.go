package task

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
func (r *run) keepDeadLetter(ctx workflow.Context, cause string) (fleet.TaskStatus, string) {
	retention := r.in.DeadLetterRetention.Or(fleet.DefaultDeadLetterRetention)
	since := workflow.Now(ctx).UTC()
	r.dead = &fleet.DeadLetter{Since: since, Until: since.Add(retention), Cause: cause}
	r.mark(ctx, fleet.TaskDeadLetter)
	listed := *r.dead
	listed.Cause = shorten(cause, memoCauseBytes)
	r.note(ctx, contract.MemoDeadLetter, listed)
	r.tellFiring(ctx)

	decided, _ := workflow.AwaitWithOptions(ctx, workflows.Named(retention, "dead letter, kept for a retry"),
		func() bool { return r.retry != nil || r.discard != nil || r.cancel != nil })
	switch {
	case !decided && ctx.Err() == nil:
		return fleet.TaskFailed, "dead letter, not retried within its retention: " + cause
	case r.discard != nil:
		return fleet.TaskFailed, "discarded: " + r.discard.Reason
	case r.retry != nil:
		why := "retried by hand"
		if r.retry.Reason != "" {
			why += ": " + r.retry.Reason
		}
		r.restart(ctx, why)
	}
	return "", ""
}

func (r *run) mayDiscard(req contract.DiscardRequest) error {
	if req.Reason == "" {
		return workflows.Refuse("a dead letter is discarded with a reason")
	}
	return r.refuseDeadLetter("discarded")
}

// standing is a status in words. The workflow does not know whether an agent has begun a queued task.
func standing(s fleet.TaskStatus) string {
	if s == fleet.TaskQueued {
		return "queued or running"
	}
	return string(s)
}

// refuseDeadLetter rejects an update unless the task is an undecided dead letter.
func (r *run) refuseDeadLetter(done string) error {
	switch {
	case r.status != fleet.TaskDeadLetter:
		return workflows.Refuse("only a dead letter can be %s; this task is %s", done, standing(r.status))
	case r.retry != nil:
		return workflows.Refuse("the dead letter is being retried")
	case r.discard != nil:
		return workflows.Refuse("the dead letter is being discarded")
	case r.cancel != nil:
		return workflows.Refuse("the task is being cancelled")
	}
	return nil
}

// note sets a field of the workflow's memo, which lists show.
func (r *run) note(ctx workflow.Context, field string, value any) {
	if err := workflow.UpsertMemo(ctx, map[string]any{field: value}); err != nil {
		workflow.GetLogger(ctx).Warn("The memo was not set", "field", field, "error", err)
	}
}

// shorten cuts the end of a text.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// tellFiring reports to the schedule's firing that made the task, if any, that the task waits for a person. The firing
// may have ended.
func (r *run) tellFiring(ctx workflow.Context) {
	parent := workflow.GetInfo(ctx).ParentWorkflowExecution
	if parent == nil {
		return
	}
	if _, _, ok := contract.FiringOfWorkflowID(parent.ID); ok {
		contract.SettledSignal.SendFrom(ctx, parent.ID, parent.RunID,
			contract.TaskSettled{Status: r.status, Why: r.why})
	}
}
