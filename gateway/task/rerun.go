package task

import (
	"context"
	"net/http"
	"strings"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func (h *Handlers) registerRerun(r *rest.Routes) {
	rest.Respond(r, "rerun-task", "POST /tasks/{id}/rerun", "Run a task again as a new task",
		"Of a task that has ended, or is a dead letter: submits a new task with its type, payload, cluster, labels and "+
			"other settings, to begin at once, and rerun_of. The old one stays as it is. Of a run's step or an array's "+
			"element too: the new task stands alone, and the run or array does not wait for it. A retry runs them again "+
			"in their place."+refuses,
		func(ctx context.Context, in *rest.To[*api.RerunTaskRequest]) (*rest.StatusOutput[api.Task], error) {
			task, err := h.rerun(ctx, in)
			return rest.Begun(task, task.Duplicate, err)
		}, rest.Held, rest.Payload, rest.Status(http.StatusAccepted), submittedBefore)
}

// rerun submits a task that repeats another.
func (h *Handlers) rerun(ctx context.Context, in *rest.To[*api.RerunTaskRequest]) (api.Task, error) {
	old, err := h.waitForTask(ctx, in.ID, 0, includePayload)
	if err != nil {
		return api.Task{}, err
	}
	if why := notAgain(&old); why != "" {
		return api.Task{}, httpapi.Problem(protocol.CodeConflict, why)
	}
	r := &api.TaskRequest{TaskSpec: again(old.Spec, old.ID)}
	r.Payload = old.Payload
	body := rest.Given(in.Body)
	r.ID, r.IdempotencyKey = body.ID, body.IdempotencyKey
	if len(body.Payload) > 0 {
		r.Payload = body.Payload
	}
	return h.submit(ctx, r, old.ID)
}

// notAgain is why a task cannot be repeated, and what to do instead; "": it can.
func notAgain(t *api.Task) string {
	run, step, _, isStep := job.CutTaskID(t.ID)
	of, _, isInstance := job.CutInstanceID(t.ID)
	_, _, isElement := array.ElementOf(t.ID)
	switch {
	case isInstance:
		return "it is an instance of a job, which starts its instances itself: restart it (mainstay job restart " + of + ")"
	case strings.Contains(t.ID, array.Mark) && !isElement:
		return "it is a delivery of several elements of an array: run these again, each by its own id"
	case t.Status == api.TaskReview:
		return "the task waits for a person: decide about it (mainstay task review --decision rerun)"
	case t.Status != api.TaskDeadLetter && !t.Status.Final():
		return "the task has not ended: it is " + string(t.Status) + "; wait for its end, or cancel it first"
	case isStep && len(t.Attempts) == 0:
		return "step " + step + " never began, so it has no payload yet: run it in its run (mainstay run retry " + run + ")"
	case t.Spec == nil:
		return "what the task was submitted with cannot be read any more: submit it anew"
	}
	return ""
}

// again is the request for a task that repeats one with this spec and id. It keeps the values that the task's recovery
// and the cluster have put in place of the original ones.
func again(spec *api.TaskSpec, id string) api.TaskSpec {
	s := *spec
	s.StartAt, s.ExpiresAt = time.Time{}, time.Time{}
	if s.ShardKey == id {
		s.ShardKey = "" // of a task without one
	}
	if s.Recovery != nil {
		s.Retry = api.RetryPolicy{NonRetryable: s.Retry.NonRetryable} // the rest are the cluster's defaults
	}
	return s
}
