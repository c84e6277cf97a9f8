package protocol

import (
	"time"

	"mainstay.dev/mainstay/fleet"
)

// StatePath takes what an agent answers to CommandState and CommandSync: POST StateReport → StateTaken.
const StatePath = "/api/v1/agents/{id}/state"

// Commands about the state that the agents of a cluster share. Only an agent that tells of its state in its polls gets
// them.
const (
	// CommandState asks for the state, with StatePath: for the manifest, or for the entries that Refs names.
	CommandState CommandType = "state"
	// CommandSync hands the agent Entries to take, and Refs of entries to forget. It answers with StatePath.
	CommandSync CommandType = "sync"
)

// StateReport answers a CommandState or a CommandSync.
type StateReport struct {
	// Request is the command's.
	Request    string             `json:"request" maxLength:"64"`
	State      fleet.StateSummary `json:"state"`
	CapturedAt time.Time          `json:"captured_at"`
	Manifest   []fleet.StateLine  `json:"manifest,omitempty" maxItems:"2000" doc:"All entries without their values, when no refs were named."`
	Entries    []fleet.StateEntry `json:"entries,omitempty" maxItems:"2000" doc:"The entries that were asked for."`
	Error      string             `json:"error,omitempty" maxLength:"1024" doc:"Why entries could not be taken."`
}

// StateTaken answers a StateReport.
type StateTaken struct {
	// Awaited is false when nobody waits for it any more.
	Awaited bool `json:"awaited"`
}
