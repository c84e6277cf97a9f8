package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
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

// Register has a worker do the activity.
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

const (
	// packFrom is the length of JSON from which a message is compressed. Temporal takes messages of up to 2 MiB, and
	// the state of a cluster with thousands of members is longer.
	packFrom = 512 << 10
	// packWindow is how far back it finds text again: the ids of thousands of agents are in several lists of them.
	packWindow = 8 << 20
	// denseFrom is the length of a compressed message from which it is compressed more thoroughly, which takes twice
	// as long. Text for bytes makes a third more of it.
	denseFrom = 1300 << 10
	// maxUnpacked bounds what a packed message may hold.
	maxUnpacked = 64 << 20
)

// mostMessage is how long a message may be as JSON: Temporal takes 2 MiB, with what the SDK adds to it.
const mostMessage = 2<<20 - 16<<10

// Fits reports whether Temporal takes a message. A workflow that ends or continues with one that it does not take
// stands still for ever: nobody can ask, change or cancel it.
//
//workflowcheck:ignore
func Fits(message any) bool {
	data, err := json.Marshal(message)
	return err == nil && len(data) <= mostMessage
}

// Bytes is how long a message is as JSON.
//
//workflowcheck:ignore
func Bytes(message any) int {
	data, _ := json.Marshal(message)
	return len(data)
}

// packedMessage stands for a long message.
type packedMessage struct {
	Zstd []byte `json:"zstd"`
}

// pack is a message as JSON.
func pack(message any) ([]byte, error) {
	data, err := json.Marshal(message)
	if err != nil || len(data) < packFrom {
		return data, err
	}
	if len(data) > maxUnpacked {
		return nil, fmt.Errorf("a message has %d bytes, and at most %d can be read", len(data), maxUnpacked)
	}
	var packed []byte
	for _, level := range []zstd.EncoderLevel{zstd.SpeedDefault, zstd.SpeedBetterCompression} {
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(packWindow),
			zstd.WithEncoderLevel(level))
		if err != nil {
			return nil, err
		}
		if packed = z.EncodeAll(data, packed[:0]); len(packed) < denseFrom {
			break
		}
	}
	return json.Marshal(packedMessage{Zstd: packed})
}

// unpack is the inverse of pack. It reads messages that were never packed, too.
func unpack(data []byte, message any) error {
	if !bytes.HasPrefix(data, []byte(`{"zstd":`)) {
		return json.Unmarshal(data, message)
	}
	var packed packedMessage
	if err := json.Unmarshal(data, &packed); err != nil {
		return err
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		return err
	}
	defer z.Close()
	if data, err = z.DecodeAll(packed.Zstd, nil); err != nil {
		return fmt.Errorf("read a packed message: %w", err)
	}
	return json.Unmarshal(data, message)
}

type (
	plainClusterInput ClusterInput
	plainClusterView  ClusterView
	plainRunInput     RunInput
	plainJobInput     JobInput
	plainExamined     Examined
	plainDirective    Directive
	plainJoinResponse JoinResponse
)

// MarshalJSON compresses a large state.
func (in ClusterInput) MarshalJSON() ([]byte, error) {
	if in.packed != nil {
		return in.packed, nil
	}
	return pack(plainClusterInput(in))
}

// muchText is how much text of and about its members, in bytes, a state has at least that does not fit into a message.
const muchText = 768 << 10

// PackShort packs the input and drops of it what has to go so that Temporal takes it. It reports whether that was
// enough. Each packing takes most of a second of a core for thousands of members, so there are two at most. What
// changes later is not sent.
//
//workflowcheck:ignore
func (in *ClusterInput) PackShort() (fits bool) {
	if in.State.TextsSize()+in.State.NotesSize() > muchText {
		in.State.Shorten()
	}
	if in.pack() {
		return true
	}
	in.State.Shorten()
	in.State.ForgetReplaced()
	in.IdleFailovers = nil
	return in.pack()
}

// pack compresses the input for the message that it is about to be, and reports whether Temporal takes that.
func (in *ClusterInput) pack() (fits bool) {
	data, err := pack(plainClusterInput(*in))
	in.packed = data
	return err == nil && len(data) <= mostMessage
}

// UnmarshalJSON reads a state, compressed or not.
func (in *ClusterInput) UnmarshalJSON(data []byte) error {
	return unpack(data, (*plainClusterInput)(in))
}

// MarshalJSON compresses a large view.
func (v ClusterView) MarshalJSON() ([]byte, error) { return pack(plainClusterView(v)) }

// UnmarshalJSON reads a view, compressed or not.
func (v *ClusterView) UnmarshalJSON(data []byte) error { return unpack(data, (*plainClusterView)(v)) }

// MarshalJSON compresses a large directive.
func (d Directive) MarshalJSON() ([]byte, error) { return pack(plainDirective(d)) }

// UnmarshalJSON reads a directive, compressed or not.
func (d *Directive) UnmarshalJSON(data []byte) error { return unpack(data, (*plainDirective)(d)) }

// MarshalJSON compresses a large answer.
func (r JoinResponse) MarshalJSON() ([]byte, error) { return pack(plainJoinResponse(r)) }

// UnmarshalJSON reads an answer, compressed or not.
func (r *JoinResponse) UnmarshalJSON(data []byte) error { return unpack(data, (*plainJoinResponse)(r)) }

// MarshalJSON compresses a large input.
func (in RunInput) MarshalJSON() ([]byte, error) { return pack(plainRunInput(in)) }

// UnmarshalJSON reads an input, compressed or not.
func (in *RunInput) UnmarshalJSON(data []byte) error { return unpack(data, (*plainRunInput)(in)) }

// MarshalJSON compresses a large input.
func (in JobInput) MarshalJSON() ([]byte, error) { return pack(plainJobInput(in)) }

// UnmarshalJSON reads an input, compressed or not.
func (in *JobInput) UnmarshalJSON(data []byte) error { return unpack(data, (*plainJobInput)(in)) }

// JobState is a job as a message: one with an instance on each of thousands of agents is long.
type JobState struct{ job.Job }

// MarshalJSON compresses a large state.
func (s JobState) MarshalJSON() ([]byte, error) { return pack(s.Job) }

// UnmarshalJSON reads a state, compressed or not.
func (s *JobState) UnmarshalJSON(data []byte) error { return unpack(data, &s.Job) }

// MarshalJSON compresses what was found, as when thousands of agents are ill.
func (e Examined) MarshalJSON() ([]byte, error) { return pack(plainExamined(e)) }

// UnmarshalJSON reads what was found, compressed or not.
func (e *Examined) UnmarshalJSON(data []byte) error { return unpack(data, (*plainExamined)(e)) }

// HealingCycle is the record of a healing cycle as a message.
type HealingCycle struct{ api.HealingCycleRecord }

// MarshalJSON compresses a large record.
func (c HealingCycle) MarshalJSON() ([]byte, error) { return pack(c.HealingCycleRecord) }

// UnmarshalJSON reads a record, compressed or not.
func (c *HealingCycle) UnmarshalJSON(data []byte) error { return unpack(data, &c.HealingCycleRecord) }

// RunLedger is a run's ledger as a message.
type RunLedger struct{ job.Ledger }

// MarshalJSON compresses a large ledger.
func (l RunLedger) MarshalJSON() ([]byte, error) { return pack(l.Ledger) }

// UnmarshalJSON reads a ledger, compressed or not.
func (l *RunLedger) UnmarshalJSON(data []byte) error { return unpack(data, &l.Ledger) }
