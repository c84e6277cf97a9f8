package contract

import "mainstay.dev/mainstay/fleet"

// ReadLogActivity runs on a hub's own queue, as an activity without a workflow: it reads lines of the log of an attempt
// that one of the hub's agents runs.
var ReadLogActivity = Activity[ReadLogInput, ReadLogResult]{"ReadLog"}

// ReadLogInput says which lines.
type ReadLogInput struct {
	TaskID  string `json:"task_id"`
	Attempt int    `json:"attempt"`
	// After is the number of the last line that the reader has.
	After int64 `json:"after"`
	// Wait is how long to wait for a line.
	Wait fleet.Duration `json:"wait,omitempty"`
}

// ReadLogResult has the lines that there are.
type ReadLogResult struct {
	AgentID string          `json:"agent_id,omitempty"`
	Lines   []fleet.LogLine `json:"lines,omitempty"`
	// Gone says that no agent of the hub has the attempt any more.
	Gone bool `json:"gone,omitempty"`
	// Silent says that the agent did not answer: it may not know how to.
	Silent bool `json:"silent,omitempty"`
}

// ReadLogID is the id of one reading. nonce makes it unique.
func ReadLogID(task, nonce string) string { return "read-log/" + task + "/" + nonce }
