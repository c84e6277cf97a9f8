package mesh

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// Status is what has become of an event.
type Status string

// The statuses of an event.
const (
	Received    Status = "received"    // it is being matched and dispatched
	Dispatched  Status = "dispatched"  // what it asks for was started
	Unmatched   Status = "unmatched"   // nothing asks for it; it is kept, and can be replayed
	Quarantined Status = "quarantined" // it could not be dispatched, or what it started died: it waits for a person
	Discarded   Status = "discarded"   // a person gave it up
)

// Waits reports whether a person can still replay or discard the event.
func (s Status) Waits() bool { return s == Unmatched || s == Quarantined }

// MaxProblem bounds in bytes why an event was not dispatched, which is kept for each try.
const MaxProblem = 1 << 10

// InboundEvent is what has become of an event from outside.
type InboundEvent struct {
	ID            string          `json:"id" doc:"Made of the event's source and id, with its tenant before it."`
	Tenant        string          `json:"tenant,omitempty"`
	EventID       string          `json:"event_id"`
	Source        string          `json:"source"`
	Type          string          `json:"type"`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Status        Status          `json:"status" enum:"received,dispatched,unmatched,quarantined,discarded"`
	Why           string          `json:"why,omitempty"`
	ReceivedAt    time.Time       `json:"received_at"`
	QuarantinedAt *time.Time      `json:"quarantined_at,omitempty"`
	EndedAt       *time.Time      `json:"ended_at,omitempty"`
	Dispatches    []Dispatch      `json:"dispatches,omitempty" doc:"What it started."`
	Tries         []Try           `json:"tries,omitempty" doc:"The tries that failed, and the deaths of what it started: the newest 20."`
	Corrected     json.RawMessage `json:"corrected,omitempty" doc:"The data with which a person had it dispatched again; the original stays."`
	Decisions     []EventDecision `json:"decisions,omitempty" doc:"What people decided: the newest 20."`
}

// Dispatch is one thing that an event started.
type Dispatch struct {
	Kind    Kind   `json:"kind" enum:"task,run"`
	ID      string `json:"id"`
	Job     string `json:"job,omitempty" doc:"Of a run."`
	Key     string `json:"key" doc:"The idempotency key: of the event, the operation and what it starts."`
	Outcome string `json:"outcome" enum:"started,already_exists" doc:"already_exists: the task or run was there, and was not started by this event."`
	RetryOf string `json:"retry_of,omitempty" doc:"The run that it repeats: a replay of the event started it."`
	Died    string `json:"died,omitempty" doc:"Why it died, until the event is replayed or the task is run again."`
}

// Kind is what an event can start.
type Kind string

// The kinds.
const (
	KindTask Kind = "task"
	KindRun  Kind = "run"
)

// Try is a try to dispatch an event that failed.
type Try struct {
	At  time.Time `json:"at"`
	Why string    `json:"why"`
}

// EventDecision is what a person decided about an event.
type EventDecision struct {
	Action string    `json:"action" enum:"replay,discard"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

const (
	kept     = 20 // tries, and decisions
	tries    = 5
	firstTry = 500 * time.Millisecond // the wait after it; then twice as long each time
)

// NextTry is how long to wait after the nth try failed; again is false where the event goes into quarantine.
func NextTry(n int) (wait time.Duration, again bool) { return firstTry << (n - 1), n < tries }

// FailEvent notes a try that failed.
func FailEvent(i *InboundEvent, why string, now time.Time) {
	i.Tries = append(i.Tries, Try{At: now, Why: why})
	i.Tries = i.Tries[max(0, len(i.Tries)-kept):]
}

// DecideEvent notes what a person decided.
func DecideEvent(i *InboundEvent, d EventDecision) {
	i.Decisions = append(i.Decisions, d)
	i.Decisions = i.Decisions[max(0, len(i.Decisions)-kept):]
}

// AddDispatches adds what the event has started. What was known before stays as it was.
func AddDispatches(i *InboundEvent, dispatches []Dispatch) {
	for _, d := range dispatches {
		if !slices.ContainsFunc(i.Dispatches, func(known Dispatch) bool { return known.ID == d.ID }) {
			i.Dispatches = append(i.Dispatches, d)
		}
	}
}

// SettleDispatch notes why something that the event started has died; empty: it lives after all. It reports whether the event
// has started it.
func SettleDispatch(i *InboundEvent, id, died string) bool {
	at := slices.IndexFunc(i.Dispatches, func(d Dispatch) bool { return d.ID == id })
	if at >= 0 {
		i.Dispatches[at].Died = died
	}
	return at >= 0
}

// DeadDispatches are the things that the event started and that have died.
func DeadDispatches(i *InboundEvent) (dead []Dispatch) {
	for _, d := range i.Dispatches {
		if d.Died != "" {
			dead = append(dead, d)
		}
	}
	return dead
}

// ReviveDispatches takes in what lives again: the same task, or the run that repeats one.
func ReviveDispatches(i *InboundEvent, dispatches []Dispatch) {
	for _, d := range dispatches {
		SettleDispatch(i, cmp.Or(d.RetryOf, d.ID), "")
	}
	AddDispatches(i, dispatches)
}

// DispatchKey is the idempotency key with which an event starts something.
func DispatchKey(eventID, target string) string {
	sum := sha256.Sum256([]byte(eventID + ":AgentTaskDispatch:" + target))
	return hex.EncodeToString(sum[:])
}

// RunID is the id of the run that an event starts of a job, by the job's full name. With a key, all events that have it
// start one run.
func RunID(job string, e *Envelope, key string) string {
	tenant, name := fleet.CutTenant(job)
	parts := []string{tenant, e.Attr("source"), e.Attr("id"), name}
	if key != "" {
		parts = []string{tenant, name, key}
	}
	h := sha256.New()
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return fleet.Qualify(tenant, name+"-"+hex.EncodeToString(h.Sum(nil)[:12]))
}
