package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"mainstay.dev/sdk/api"
)

// Handler runs one attempt of a task. Its return value becomes the task's result, as JSON. ctx ends when the attempt
// must stop; context.Cause has the reason. A handler that returns a nil error has completed its task even if ctx has
// ended.
type Handler func(ctx context.Context, task *Task) (any, error)

// Task is one attempt given to a handler. The zero Task with a Payload is good enough for a handler's own tests.
type Task struct {
	ID          string
	Type        string
	Cluster     string
	Attempt     int
	Payload     json.RawMessage
	RetrySafety api.RetrySafety
	// Timeout is how long the handler may run; ctx has the deadline. 0 means no bound.
	Timeout time.Duration
	// StopGrace is how long its work has to end once ctx has ended; nil: see api.GraceOf.
	StopGrace *api.Duration
	// Checkpoint is the newest checkpoint of an earlier attempt, or nil.
	Checkpoint json.RawMessage
	Labels     map[string]string
	Tenant     string
	// Shard is the shard that the task belongs to; nil where the cluster is not sharded.
	Shard *int
	// Element is the place of an array's element, from 0; nil for other tasks.
	Element *int
	// Instance is set of an instance of a job.
	Instance *api.InstanceOf
	// Allocation has the resources that the task got for its place, or is nil. Volumes has the paths of its volumes.
	Allocation *api.Allocation
	Volumes    map[string]string
	// IdempotencyKey is the same for every attempt of the work, for calls of services that accept idempotency keys.
	IdempotencyKey string
	// TransferredFrom is the lost agent that had the task before, or "".
	TransferredFrom string

	attempt *attempt // nil outside an agent
}

// Decode reads the payload into v. The error is non-retryable: the same payload fails again.
func (t *Task) Decode(v any) error {
	if err := json.Unmarshal(t.Payload, v); err != nil {
		return NonRetryable(fmt.Errorf("payload of task type %s: %w", t.Type, err))
	}
	return nil
}

// maxStep and maxMessage bound the texts of a progress report, in bytes.
const (
	maxStep    = 200
	maxMessage = 1000
)

// Progress reports how far the handler is, 0 to 100, and its current step. It is sent with the next heartbeat and
// counts as a beacon.
func (t *Task) Progress(percent int, step string) {
	t.ReportProgress(api.Progress{Percent: percent, Step: step})
}

// ReportProgress is Progress with a message for people of up to 1,000 bytes, and how long the attempt probably takes in
// all, which holds until another is given.
func (t *Task) ReportProgress(p api.Progress) {
	if t.attempt == nil {
		return
	}
	p = api.Progress{Percent: min(100, max(0, p.Percent)), Step: cutText(p.Step, maxStep),
		Message: cutText(p.Message, maxMessage), EstimatedDuration: max(0, p.EstimatedDuration)}
	t.attempt.report(func(at *attempt) {
		if p.EstimatedDuration == 0 && at.progress != nil {
			p.EstimatedDuration = at.progress.EstimatedDuration
		}
		at.progress = &p
	})
}

// Log adds a line to the attempt's log, which counts as a beacon; several lines of text add as many. The agent keeps
// the newest 500 lines, 64 KiB in all, and sends them only while somebody watches (mainstay task logs). A line of more
// than 4 KiB becomes several.
func (t *Task) Log(text string) {
	if t.attempt == nil {
		return
	}
	w := t.attempt.lines("")
	_, _ = w.Write([]byte(text)) // to memory
	w.end()
}

// SaveCheckpoint keeps v, as JSON of at most 64 KiB, for the next attempt if this one is lost. It is sent promptly; of
// several in a row only the newest may be sent. An element of an array keeps none.
func (t *Task) SaveCheckpoint(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("agent: encode checkpoint: %w", err)
	}
	if len(data) > api.MaxCheckpointBytes {
		return fmt.Errorf("agent: the checkpoint has %d bytes, %d are allowed: store it elsewhere and save where",
			len(data), api.MaxCheckpointBytes)
	}
	if err := api.CheckJSONDepth(data, api.MaxJSONValueDepth); err != nil {
		return fmt.Errorf("agent: the checkpoint: %w", err)
	}
	if t.attempt == nil || t.Element != nil {
		return nil
	}
	t.attempt.report(func(at *attempt) {
		at.checkpoint = data
		at.checkpointVersion++
	})
	t.attempt.run.pollWithin(checkpointSpacing)
	return nil
}

// Beacon is a sign of life from the handler. The attempt of a task with a beacon timeout ends without one in time.
// Progress, checkpoints and log lines count as beacons too.
func (t *Task) Beacon() {
	if t.attempt != nil {
		t.attempt.report(func(*attempt) {})
	}
}
