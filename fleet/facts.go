package fleet

import (
	"time"
)

// FleetFacts are what is known of the clusters at one time, for decisions about the whole fleet.
type FleetFacts struct {
	At       time.Time      `json:"at"`
	Clusters []ClusterFacts `json:"clusters,omitempty"` // sorted by name
	// Silent are the clusters that did not answer in time. Nothing must be concluded about them.
	Silent []string `json:"silent,omitempty"`
}

// ClusterFacts are a cluster as its workflow knows it, and how its agents do right now.
type ClusterFacts struct {
	Cluster
	CreatedAt time.Time `json:"created_at"`
	// Live has the members whose hub publishes them, by id. One that is missing is not known to do anything: a registry
	// that was just restarted is empty for a while, so absence alone means nothing.
	Live map[string]LiveAgent `json:"live,omitempty"`
}

// LiveAgent is how an agent's present process does, as its hub last published it: every heartbeat interval.
type LiveAgent struct {
	Running       int       `json:"running"`
	FreeSlots     int       `json:"free_slots"`
	CPUPercent    float64   `json:"cpu_percent"`
	MemoryPercent float64   `json:"memory_percent"`
	LastHeartbeat time.Time `json:"last_heartbeat"`
	// Processed and Failed are totals since the process started.
	Processed int `json:"processed"`
	Failed    int `json:"failed"`
	// Health and Score are how its hub rates it; empty: not known.
	Health HealthLevel `json:"health,omitempty"`
	Score  float64     `json:"score,omitempty"`
	// WorkedAt is when it last had work, or came online.
	WorkedAt time.Time `json:"worked_at,omitzero"`
	// Stopping says that it takes nothing new and will say goodbye.
	Stopping bool `json:"stopping,omitempty"`
}

// ScalingFacts are what changes every second. Without them only the number of agents is looked at.
type ScalingFacts struct {
	// Queue is about how many tasks wait in the cluster's lanes.
	Queue int64 `json:"queue"`
	// Agents are those of which the load is known.
	Agents []AgentActivity `json:"agents,omitempty"`
}

// AgentActivity is what one agent does now.
type AgentActivity struct {
	AgentID    string    `json:"agent_id"`
	Running    int       `json:"running"`
	IdleSince  time.Time `json:"idle_since,omitzero"` // when it last had work, or came online
	CPUPercent float64   `json:"cpu_percent"`
	Pinned     bool      `json:"pinned,omitempty"` // open tasks can run only there
}

// Pin notes that work is pinned to an agent. It reports whether that was news.
func (f *ScalingFacts) Pin(agent string) bool {
	for i := range f.Agents {
		if a := &f.Agents[i]; a.AgentID == agent && !a.Pinned {
			a.Pinned = true
			return true
		}
	}
	return false
}
