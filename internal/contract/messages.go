package contract

import (
	"context"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// None stands for an argument or an answer that a message does not have. It is never encoded.
type None struct{}

// NoAnswer makes a handler that answers None from one that only fails or succeeds.
func NoAnswer[Ctx, In any](do func(Ctx, In) error) func(Ctx, In) (None, error) {
	return func(ctx Ctx, in In) (None, error) { return None{}, do(ctx, in) }
}

// withoutAnswer is the inverse of NoAnswer for Out = None, and do itself for any other: the SDK encodes what do
// answers.
func withoutAnswer[Ctx, In, Out any](do func(Ctx, In) (Out, error)) any {
	if into(new(Out)) != nil {
		return do
	}
	return func(ctx Ctx, in In) error {
		_, err := do(ctx, in)
		return err
	}
}

// into is where the SDK decodes an answer to; nil: nowhere.
func into[T any](value *T) any {
	if _, none := any(value).(*None); none {
		return nil
	}
	return value
}

// args are the arguments as the SDK encodes them.
func args[T any](in T) []any {
	if into(&in) == nil {
		return nil
	}
	return []any{in}
}

// Update is an update of a workflow, which takes In and answers Out.
type Update[In, Out any] struct{ Name string }

// Handle answers the update in a workflow. An error of validate refuses it before it is in the history; nil takes all.
func (u Update[In, Out]) Handle(
	ctx workflow.Context, do func(workflow.Context, In) (Out, error), validate func(In) error,
) error {
	var options workflow.UpdateHandlerOptions
	if validate != nil {
		options.Validator = validate
	}
	return workflow.SetUpdateHandlerWithOptions(ctx, u.Name, withoutAnswer(do), options)
}

// Send sends the update to a workflow and waits for its answer.
func (u Update[In, Out]) Send(ctx context.Context, c client.Client, workflowID string, in In) (Out, error) {
	return u.SendOnce(ctx, c, workflowID, "", in)
}

// SendOnce is Send under an id: sent again under the same id, the update is answered as it was the first time. One that
// would change nothing counts as done.
func (u Update[In, Out]) SendOnce(
	ctx context.Context, c client.Client, workflowID, updateID string, in In,
) (out Out, err error) {
	handle, err := c.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		UpdateID:     updateID,
		WorkflowID:   workflowID,
		UpdateName:   u.Name,
		Args:         args(in),
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err != nil {
		return out, err
	}
	if err = handle.Get(ctx, into(&out)); IsUnchanged(err) {
		err = nil
	}
	return out, err
}

// Signal is a signal to a workflow with the argument T.
type Signal[T any] struct{ Name string }

// Send sends the signal to a workflow.
func (s Signal[T]) Send(ctx context.Context, c client.Client, workflowID string, in T) error {
	return c.SignalWorkflow(ctx, workflowID, "", s.Name, in)
}

// SendFrom sends the signal from one workflow to another; without a run id, to its present run. The future is ready
// when the signal is in the other's history.
func (s Signal[T]) SendFrom(ctx workflow.Context, workflowID, runID string, in T) workflow.Future {
	return workflow.SignalExternalWorkflow(ctx, workflowID, runID, s.Name, in)
}

// Inbox is where a workflow receives the signal.
func (s Signal[T]) Inbox(ctx workflow.Context) Inbox[T] {
	return Inbox[T]{channel: workflow.GetSignalChannel(ctx, s.Name)}
}

// Inbox has the signals that a workflow was sent and has not taken.
type Inbox[T any] struct{ channel workflow.ReceiveChannel }

// Len is the number of signals.
func (i Inbox[T]) Len() int { return i.channel.Len() }

// Take calls do for each signal that is there. The SDK drops one that cannot be read.
func (i Inbox[T]) Take(do func(T)) {
	for i.Len() > 0 {
		if in, ok := i.Next(); ok {
			do(in)
		}
	}
}

// Next takes the next signal that can be read; ok is false when none is there.
func (i Inbox[T]) Next() (in T, ok bool) {
	ok = i.channel.ReceiveAsync(&in)
	return in, ok
}

// Query is a query of a workflow without an argument, which answers Out.
type Query[Out any] struct{ Name string }

// Handle answers the query in a workflow.
func (q Query[Out]) Handle(ctx workflow.Context, answer func() Out) error {
	return workflow.SetQueryHandler(ctx, q.Name, func() (Out, error) { return answer(), nil })
}

// Ask asks the present run of a workflow.
func (q Query[Out]) Ask(ctx context.Context, c client.Client, workflowID string) (Out, error) {
	return q.AskRun(ctx, c, workflowID, "")
}

// AskRun asks one run of a workflow.
func (q Query[Out]) AskRun(ctx context.Context, c client.Client, workflowID, runID string) (out Out, err error) {
	value, err := c.QueryWorkflow(ctx, workflowID, runID, q.Name)
	if err != nil {
		return out, err
	}
	err = value.Get(&out)
	return out, err
}

// QueryWith is a query with an argument.
type QueryWith[In, Out any] struct{ Name string }

// Handle answers the query in a workflow.
func (q QueryWith[In, Out]) Handle(ctx workflow.Context, answer func(In) Out) error {
	return workflow.SetQueryHandler(ctx, q.Name, func(in In) (Out, error) { return answer(in), nil })
}

// Ask asks the present run of a workflow.
func (q QueryWith[In, Out]) Ask(ctx context.Context, c client.Client, workflowID string, in In) (out Out, err error) {
	value, err := c.QueryWorkflow(ctx, workflowID, "", q.Name, in)
	if err != nil {
		return out, err
	}
	err = value.Get(&out)
	return out, err
}

// Activity is an activity, which takes In and answers Out.
type Activity[In, Out any] struct{ Name string }

// Register makes a worker do the activity.
func (a Activity[In, Out]) Register(w worker.ActivityRegistry, do func(context.Context, In) (Out, error)) {
	w.RegisterActivityWithOptions(withoutAnswer(do), activity.RegisterOptions{Name: a.Name})
}

// Execute begins the activity in a workflow, with the options of its context.
func (a Activity[In, Out]) Execute(ctx workflow.Context, in In) Future[Out] {
	return Future[Out]{workflow.ExecuteActivity(ctx, a.Name, args(in)...)}
}

// ExecuteLocal begins the activity in the process of the workflow.
func (a Activity[In, Out]) ExecuteLocal(ctx workflow.Context, in In) Future[Out] {
	return Future[Out]{workflow.ExecuteLocalActivity(ctx, a.Name, args(in)...)}
}

// Future is what an activity will have answered.
type Future[Out any] struct{ workflow.Future }

// Get waits for the answer.
func (f Future[Out]) Get(ctx workflow.Context) (out Out, err error) {
	err = f.Future.Get(ctx, into(&out))
	return out, err
}
