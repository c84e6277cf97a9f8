package task

import (
	"context"
	"strings"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

func (h *Handlers) registerActions(r *rest.Routes) {
	serveAction(r, "cancel", "Cancel an open task",
		"A running attempt is told to stop; the task ends when its agent has, or after 30 s.",
		func(ctx context.Context, in *rest.To[*api.ReasonRequest]) (api.Task, error) {
			return act(ctx, h, in.ID, contract.CancelUpdate, contract.CancelRequest{Reason: in.Body.Text()})
		})
	serveAction(r, "retry", "Retry a dead letter", "It gets a fresh set of attempts.",
		func(ctx context.Context, in *rest.To[*api.ReasonRequest]) (api.Task, error) {
			return act(ctx, h, in.ID, contract.RetryUpdate, contract.RetryRequest{Reason: in.Body.Text()})
		})
	serveAction(r, "discard", "Give a dead letter up", "It ends as failed at once, and not when its retention does.",
		func(ctx context.Context, in *rest.To[api.DiscardTaskRequest]) (api.Task, error) {
			return act(ctx, h, in.ID, contract.DiscardUpdate, contract.DiscardRequest{Reason: in.Body.Reason})
		})
	rest.Serve(r, "set-task-priority", "POST /tasks/{id}/priority", "Change the priority of an open task",
		"A task that waits in its lane is moved there within about a second; what an agent has already is not "+
			"disturbed, and the priority holds for later attempts."+refuses,
		func(ctx context.Context, in *rest.To[api.TaskPriorityRequest]) (api.Task, error) {
			if !in.Body.Priority.Valid() {
				return api.Task{}, rest.Invalid("body.priority", api.ErrPriority)
			}
			return act(ctx, h, in.ID, contract.ReprioritizeUpdate, contract.ReprioritizeRequest{
				Priority: in.Body.Priority, Reason: in.Body.Reason,
			})
		}, rest.Held)
	serveAction(r, "review", "Decide about a task in review",
		"A task is in review when running it again may not be safe.",
		func(ctx context.Context, in *rest.To[api.ReviewTaskRequest]) (api.Task, error) {
			if len(in.Body.Result) > api.MaxPayloadBytes {
				return api.Task{}, httpapi.Problem(protocol.CodePayloadTooLarge, "result is larger than 1 MiB")
			}
			return act(ctx, h, in.ID, contract.ReviewUpdate, contract.ReviewRequest{
				Decision: in.Body.Decision, Result: in.Body.Result, Reason: in.Body.Reason,
			})
		}, rest.Payload)
}

const refuses = " Answers 409 conflict when the task's state does not allow it."

func serveAction[In any](
	r *rest.Routes, word, summary, description string, do func(context.Context, *In) (api.Task, error),
	options ...rest.Option,
) {
	rest.Serve(r, word+"-task", "POST /tasks/{id}/"+word, summary, description+refuses, do,
		append(options, rest.Held)...)
}

// act runs an update on an open task and answers the task as it stands afterwards.
func act[In any, P interface {
	*In
	Address(key, by string)
}](
	ctx context.Context, h *Handlers, id string, u contract.Update[In, contract.Done], request In,
) (api.Task, error) {
	id, err := rest.OwnTask(ctx, id)
	if err != nil {
		return api.Task{}, err
	}
	if rest.Limited(ctx) {
		if _, err := h.describeTask(ctx, id); err != nil {
			return api.Task{}, err
		}
	}
	workflowID, key := contract.Locate(id)
	if strings.HasPrefix(key, ".") {
		return api.Task{}, httpapi.Problem(protocol.CodeConflict,
			"this is an element of an array: act on the array (mainstay array, or POST /api/v1/agents/arrays/{id}/…)")
	}
	updateCtx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	P(&request).Address(key, rest.Who(ctx))
	_, err = store.Update(updateCtx, h.Store, u, workflowID, request)
	if store.KindOf(err) == store.NotFound {
		// Temporal says the same of a workflow that has ended; a task that never was fails here.
		task, err := h.task(ctx, id)
		if err != nil {
			return api.Task{}, err
		}
		remedy := ""
		if u.Name == contract.RetryUpdate.Name {
			remedy = "; to run it again as a new task, use rerun"
		}
		return api.Task{}, httpapi.Problem(protocol.CodeConflict,
			"the task has ended: it is "+string(task.Status)+remedy)
	}
	if err != nil {
		return api.Task{}, h.Answer(err, "update a task", protocol.CodeUnknownTask)
	}
	return h.task(ctx, id)
}
