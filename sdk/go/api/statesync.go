package api

import (
	"time"
)

// SyncStatus is the state of a state sync.
type SyncStatus string

// The statuses of a state sync.
const (
	SyncRunning      SyncStatus = "running"
	SyncConsistent   SyncStatus = "consistent"   // every member that keeps state has the same
	SyncInconsistent SyncStatus = "inconsistent" // some still differ; members says which
	SyncSkipped      SyncStatus = "skipped"      // no member keeps state
	SyncFailed       SyncStatus = "failed"
)

// SyncReport is the report of one state sync of a cluster.
type SyncReport struct {
	Cluster string     `json:"cluster"`
	Status  SyncStatus `json:"status"`
	Reason  string     `json:"reason,omitempty"` // the reason for the sync
	Why     string     `json:"why,omitempty"`    // the reason why states still differ
	// State is the state that every member should have.
	State       StateSummary `json:"state"`
	EntriesSent int          `json:"entries_sent"`
	BytesSent   int          `json:"bytes_sent"`
	Rounds      int          `json:"rounds"`
	Members     []MemberSync `json:"members"`
	StartedAt   time.Time    `json:"started_at"`
	CompletedAt *time.Time   `json:"completed_at,omitempty"`
}

// MemberSync compares one member's state with the common state.
type MemberSync struct {
	AgentID string `json:"agent_id"`
	Role    Role   `json:"role"`
	Hub     string `json:"hub,omitempty"`
	// State is absent for an agent that keeps none or did not answer; Why has the reason.
	State      *StateSummary `json:"state,omitempty"`
	Behind     int           `json:"behind"` // entries that it lacks
	Consistent bool          `json:"consistent"`
	Why        string        `json:"why,omitempty"`
}
