package fleet

import "time"

// DeadLetter says since when and why a task is a dead letter, and until when it is kept for a retry.
type DeadLetter struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Cause string    `json:"cause"`
}
