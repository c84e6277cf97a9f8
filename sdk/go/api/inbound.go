package api

import (
	"encoding/json"
)

// Inbound is an event from outside as clients see it.
type Inbound struct {
	InboundEvent
	Duplicate bool      `json:"duplicate,omitempty" doc:"An event with this source and id came before."`
	Event     *Envelope `json:"event,omitempty" doc:"The event as it was received. Lists leave it out."`
}

// InboundBatch answers a batch of events.
type InboundBatch struct {
	Events []InboundItem `json:"events" doc:"One answer for each event, in the order in which they were sent."`
}

// InboundItem answers one event of a batch: its id and status, or why it was not taken.
type InboundItem struct {
	ID        string        `json:"id,omitempty"`
	Status    InboundStatus `json:"status,omitempty" enum:"received,dispatched,unmatched,quarantined,discarded"`
	Duplicate bool          `json:"duplicate,omitempty"`
	Error     *BatchError   `json:"error,omitempty"`
}

// ReplayRequest has an event dispatched again.
type ReplayRequest struct {
	Data   json.RawMessage `json:"data,omitempty" doc:"Data to use instead of the event's own, which is kept."`
	Reason string          `json:"reason,omitempty" maxLength:"512" doc:"Kept with the event."`
}

// DiscardEventRequest gives an event up.
type DiscardEventRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"512" doc:"Kept with the event."`
}
