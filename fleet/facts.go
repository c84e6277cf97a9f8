package fleet

import (
	"time"
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
	Cluster
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
	Health HealthLevel `json:"health,omitempty"`
	Score  float64     `json:"score,omitempty"`
	// WorkedAt is when it last had work, or came online.
	WorkedAt time.Time `json:"worked_at,omitzero"`
	// Stopping: the agent takes nothing new and will say goodbye.
	Stopping bool `json:"stopping,omitempty"`
}

// ScalingFacts are facts that change every second. Without them scaling only sees the number of agents.
type ScalingFacts struct {
	// Queue is the approximate number of tasks that wait in the cluster's lanes.
	Queue int64 `json:"queue"`
	// Agents are the agents with a known load.
	Agents []AgentActivity `json:"agents,omitempty"`
}

// AgentActivity is the present activity of one agent.
type AgentActivity struct {
	AgentID    string    `json:"agent_id"`
	Running    int       `json:"running"`
	IdleSince  time.Time `json:"idle_since,omitzero"`   // when it last had work, or came online
	CPUPercent *float64  `json:"cpu_percent,omitempty"` // nil: unknown
	Pinned     bool      `json:"pinned,omitempty"`      // open tasks can run only there
}

// Pin records that work is pinned to an agent. It reports whether this was unknown.
func (f *ScalingFacts) Pin(agent string) bool {
	for i := range f.Agents {
		if a := &f.Agents[i]; a.AgentID == agent && !a.Pinned {
			a.Pinned = true
			return true
		}
	}
	return false
}
