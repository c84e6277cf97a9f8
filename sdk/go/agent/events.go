package agent

import (
	"time"

	"mainstay.dev/sdk/api"
)

// EventKind is the kind of an Event.
type EventKind string

// The events.
const (
	EventRegistered EventKind = "registered" // a hub opened or re-attached the session
	// a hub did not answer, or does not know the session; Err has the reason
	EventReconnecting   EventKind = "reconnecting"
	EventAssigned       EventKind = "assigned"        // a handler starts
	EventFinished       EventKind = "finished"        // a handler returned; Outcome is the reported one
	EventResultAccepted EventKind = "result_accepted" // the result counts
	EventResultDropped  EventKind = "result_dropped"  // the result does not count; Err has the reason
	EventCancelled      EventKind = "cancelled"       // the hub commanded to cancel a task
	EventDropped        EventKind = "dropped"         // an attempt no longer counts and is stopped
	EventStuck          EventKind = "stuck"           // a handler does not stop when asked; its slot stays in use
	EventLeaseExpired   EventKind = "lease_expired"   // a fenced attempt is stopped
	EventRole           EventKind = "role"            // the agent's role, its shards or its targets changed
	EventStopping       EventKind = "stopping"        // the agent takes nothing new any more
	EventFenced         EventKind = "fenced"          // a newer process has the agent's id
	EventRevoked        EventKind = "revoked"         // the agent's join token was revoked, and its session ended
	EventGaveUp         EventKind = "gave_up"         // no hub answered for too long
	EventStopped        EventKind = "stopped"         // Run is about to return
)

// Event is something that happened. Fields that do not apply are empty.
type Event struct {
	Kind    EventKind
	HubURL  string
	TaskID  string
	Attempt int
	Outcome api.AttemptOutcome
	Role    api.Role
	Leader  string
	Epoch   int64
	Shards  []int
	// Targets are the deployment targets that the agent looks after, with EventRole.
	Targets []string
	Reason  string
	Err     error
	// HeartbeatInterval and FailureThreshold are what the hub asks for, with EventRegistered.
	HeartbeatInterval, FailureThreshold time.Duration
}

// emit calls OnEvent. Callers hold no mutex.
func (a *Agent) emit(e Event) {
	if a.options.OnEvent != nil {
		a.options.OnEvent(e)
	}
}
