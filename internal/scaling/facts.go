package scaling

import (
	"time"
)

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
