package api

import (
	"encoding/json"
	"time"
)

// InboundStatus is the status of an event.
type InboundStatus string

// The statuses of an event.
const (
	InboundReceived    InboundStatus = "received"    // it is being matched and dispatched
	InboundDispatched  InboundStatus = "dispatched"  // what it asks for was started
	InboundUnmatched   InboundStatus = "unmatched"   // nothing asks for it; it is kept, and can be replayed
	InboundQuarantined InboundStatus = "quarantined" // it could not be dispatched, or what it started died: it waits for a person
	InboundDiscarded   InboundStatus = "discarded"   // a person gave it up
)

// Waits reports whether a person can still replay or discard the event.
func (s InboundStatus) Waits() bool { return s == InboundUnmatched || s == InboundQuarantined }

// InboundEvent is the state of an event from outside.
type InboundEvent struct {
	ID            string            `json:"id" doc:"Made of the event's source and id, with its tenant before it."`
	Tenant        string            `json:"tenant,omitempty"`
	EventID       string            `json:"event_id"`
	Source        string            `json:"source"`
	Type          string            `json:"type"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	Status        InboundStatus     `json:"status" enum:"received,dispatched,unmatched,quarantined,discarded"`
	Why           string            `json:"why,omitempty"`
	ReceivedAt    time.Time         `json:"received_at"`
	QuarantinedAt *time.Time        `json:"quarantined_at,omitempty"`
	EndedAt       *time.Time        `json:"ended_at,omitempty"`
	Dispatches    []Dispatch        `json:"dispatches,omitempty" doc:"What it started."`
	Tries         []DispatchTry     `json:"tries,omitempty" doc:"The tries that failed, and the deaths of what it started: the newest 20."`
	Corrected     json.RawMessage   `json:"corrected,omitempty" doc:"The data with which a person had it dispatched again; the original stays."`
	Decisions     []InboundDecision `json:"decisions,omitempty" doc:"What people decided: the newest 20."`
}

// Dispatch is one thing that an event started.
type Dispatch struct {
	Kind    DispatchKind `json:"kind" enum:"task,run"`
	ID      string       `json:"id"`
	Job     string       `json:"job,omitempty" doc:"Of a run."`
	Key     string       `json:"key" doc:"The idempotency key: of the event, the operation and what it starts."`
	Outcome string       `json:"outcome" enum:"started,already_exists" doc:"already_exists: the task or run was there, and was not started by this event."`
	RetryOf string       `json:"retry_of,omitempty" doc:"The run that it repeats: a replay of the event started it."`
	Died    string       `json:"died,omitempty" doc:"Why it died, until the event is replayed or the task is run again."`
}

// DispatchKind is what an event can start.
type DispatchKind string

// The kinds.
const (
	DispatchTask DispatchKind = "task"
	DispatchRun  DispatchKind = "run"
)

// DispatchTry is a try to dispatch an event that failed.
type DispatchTry struct {
	At  time.Time `json:"at"`
	Why string    `json:"why"`
}

// InboundDecision is what a person decided about an event.
type InboundDecision struct {
	Action string    `json:"action" enum:"replay,discard"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}
