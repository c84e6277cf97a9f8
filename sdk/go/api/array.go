package api

import (
	"encoding/json"
	"time"
)

// ArrayRequest is an array as a client submits it.
type ArrayRequest struct {
	ID             string `json:"id,omitempty" maxLength:"127" pattern:"^([a-z0-9][a-z0-9._-]*:)?[a-z0-9][a-z0-9._-]*$" doc:"The array's id, up to 63 characters. Left out: one is made. Submitting the same array again answers the one that has the id; another body is refused with 409 idempotency_conflict."`
	IdempotencyKey string `json:"idempotency_key,omitempty" maxLength:"256" doc:"One key in a tenant and cluster starts one array, however often it is submitted. With another body it is refused with 409 idempotency_conflict. Not together with id."`
	TaskSpec
	Items       []json.RawMessage `json:"items,omitempty" maxItems:"100000" doc:"The elements' payloads, 1 MiB in all. Not together with count."`
	Count       int               `json:"count,omitempty" minimum:"1" maximum:"100000" doc:"How many elements there are, if they have one payload. A handler knows its element's place."`
	MaxParallel int               `json:"max_parallel,omitempty" minimum:"1" maximum:"512" doc:"Bounds the bundles that are under way at a time, each in one slot of an agent. Default 64."`
	Tolerate    *int              `json:"tolerate,omitempty" minimum:"0" doc:"How many elements may fail. When one more has, what is left is cancelled. Left out: all elements are tried, and any failure fails the array."`
}

// Array is an array as clients see it.
type Array struct {
	ArrayEntry
	Why        string        `json:"why,omitempty"`
	Counts     ElementCounts `json:"counts" doc:"Elements by their status. running: an agent has them."`
	Priority   int           `json:"priority,omitempty" doc:"As a person has set it; absent: as submitted."`
	Until      *time.Time    `json:"until,omitempty" doc:"When its dead letters and reviews are given up."`
	WorkflowID string        `json:"workflow_id" doc:"Where the array is in Temporal."`
	RunID      string        `json:"run_id,omitempty"`
	Duplicate  bool          `json:"duplicate,omitempty" doc:"The id or idempotency key was submitted before."`
}

// ArrayEntry is an array in a list: the facts that Temporal has without asking the array itself.
type ArrayEntry struct {
	ID        string            `json:"id"`
	Type      string            `json:"type"`
	Cluster   string            `json:"cluster"`
	Tenant    string            `json:"tenant,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Elements  int               `json:"elements" doc:"How many it has."`
	Status    ArrayStatus       `json:"status" enum:"running,paused,blocked,completed,partial,failed,cancelled"`
	CreatedAt *time.Time        `json:"created_at,omitempty"`
	ClosedAt  *time.Time        `json:"closed_at,omitempty"`
}

// ArrayResult is what the handler returned for an element that completed.
type ArrayResult struct {
	Element int             `json:"element"`
	Output  json.RawMessage `json:"output,omitempty"`
	AgentID string          `json:"agent_id,omitempty"`
	Millis  int64           `json:"ms,omitempty" doc:"How long the handler ran."`
}

// RetryArrayRequest runs elements of an array again.
type RetryArrayRequest struct {
	Elements []int  `json:"elements,omitempty" maxItems:"10000" doc:"Numbers of dead letters, reviews or failed elements. Left out: all dead letters."`
	Reason   string `json:"reason,omitempty" maxLength:"512"`
}
