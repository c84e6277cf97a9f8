package api

import (
	"time"
)

// ElementStatus is the status of an element.
type ElementStatus string

// The statuses of an element.
const (
	ElementQueued     ElementStatus = "queued"      // not under way
	ElementRetryWait  ElementStatus = "retry_wait"  // waits out the time before its next attempt
	ElementRunning    ElementStatus = "running"     // in a bundle in a lane or with an agent
	ElementReview     ElementStatus = "review"      // a person must decide whether it runs again
	ElementDeadLetter ElementStatus = "dead_letter" // its attempts are used up; kept for a retry
	ElementCompleted  ElementStatus = "completed"
	ElementFailed     ElementStatus = "failed"
	ElementCancelled  ElementStatus = "cancelled"
)

// ElementCounts are numbers of elements by their status.
type ElementCounts struct {
	Total      int `json:"total"`
	Queued     int `json:"queued" doc:"Those that wait for their next attempt too."`
	Running    int `json:"running"`
	Review     int `json:"review"`
	DeadLetter int `json:"dead_letter"`
	Completed  int `json:"completed"`
	Failed     int `json:"failed"`
	Cancelled  int `json:"cancelled"`
}

// ArrayStatus is the status of an array.
type ArrayStatus string

// The statuses of an array. The first three are open.
const (
	ArrayRunning   ArrayStatus = "running"
	ArrayPaused    ArrayStatus = "paused"
	ArrayBlocked   ArrayStatus = "blocked"   // only dead letters and reviews are left: a person must decide
	ArrayCompleted ArrayStatus = "completed" // all elements completed
	ArrayPartial   ArrayStatus = "partial"   // some failed, not more than it tolerates
	ArrayFailed    ArrayStatus = "failed"
	ArrayCancelled ArrayStatus = "cancelled"
)

// Final reports whether nothing changes any more.
func (s ArrayStatus) Final() bool {
	switch s {
	case ArrayRunning, ArrayPaused, ArrayBlocked:
		return false
	}
	return true
}

// ElementEntry is an element as lists show it.
type ElementEntry struct {
	Number int           `json:"element"`
	TaskID string        `json:"task_id" doc:"The id that its agent sees."`
	Status ElementStatus `json:"status" enum:"queued,retry_wait,running,review,dead_letter,completed,failed,cancelled"`
	Why    string        `json:"why,omitempty" doc:"What is known of the reason. Reasons of the first 1000 elements that failed are kept."`
	Type   string        `json:"error_type,omitempty"`
	NextAt *time.Time    `json:"next_attempt_at,omitempty"`
	// Delivery is the task id of the bundle that it is in.
	Delivery string `json:"delivery,omitempty" doc:"Of one that is running: the id of the bundle that it is in. Its log and events are under that id."`
}
