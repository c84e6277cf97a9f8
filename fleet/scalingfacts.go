package fleet

import "time"

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
