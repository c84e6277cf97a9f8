package healing

import (
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// FleetFacts are facts about all clusters at one time, for decisions about the whole fleet.
type FleetFacts struct {
	At       time.Time      `json:"at"`
	Clusters []ClusterFacts `json:"clusters,omitempty"` // sorted by name
	// Silent are the clusters that did not answer in time. Conclude nothing about them.
	Silent []string `json:"silent,omitempty"`
}

// ClusterFacts are a cluster's state and the live facts about its agents.
type ClusterFacts struct {
	cluster.Cluster
	CreatedAt time.Time `json:"created_at"`
	// Live has the members that their hubs publish, by id. Absence means nothing: a restarted registry is empty for a
	// while.
	Live map[string]LiveAgent `json:"live,omitempty"`
}

// LiveAgent has facts about an agent's present process, as its hub last published them: every heartbeat interval.
type LiveAgent struct {
	Running       int       `json:"running"`
	FreeSlots     int       `json:"free_slots"`
	CPUPercent    *float64  `json:"cpu_percent,omitempty"` // nil: unknown
	MemoryPercent *float64  `json:"memory_percent,omitempty"`
	LastHeartbeat time.Time `json:"last_heartbeat"`
	// Processed and Failed are totals since the process started.
	Processed int `json:"processed"`
	Failed    int `json:"failed"`
	// Health and Score are its hub's rating; empty: unknown.
	Health api.HealthLevel `json:"health,omitempty"`
	Score  float64         `json:"score,omitempty"`
	// WorkedAt is when it last had work, or came online.
	WorkedAt time.Time `json:"worked_at,omitzero"`
	// Stopping: the agent takes nothing new and will say goodbye.
	Stopping bool `json:"stopping,omitempty"`
}
