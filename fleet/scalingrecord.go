package fleet

import "time"

// ScalingStatus says how far an action is, as a whole.
type ScalingStatus string

// The statuses of a scaling action.
const (
	ScalingRunning   ScalingStatus = "running"
	ScalingSucceeded ScalingStatus = "succeeded"
	ScalingPartial   ScalingStatus = "partial" // with some of the agents
	ScalingFailed    ScalingStatus = "failed"
)

// ScaledStatus says how far an action is with one agent.
type ScaledStatus string

// The statuses of one agent in a scaling action.
const (
	ScaledWaiting  ScaledStatus = "waiting"
	ScaledStarted  ScaledStatus = "started" // its process runs; it is not online yet
	ScaledOnline   ScaledStatus = "online"
	ScaledDraining ScaledStatus = "draining"
	ScaledDrained  ScaledStatus = "drained" // it has no work; its process is being stopped
	ScaledStopped  ScaledStatus = "stopped"
	ScaledFailed   ScaledStatus = "failed"
)

// ScalingRecord tells one action of scaling from beginning to end.
type ScalingRecord struct {
	ID      string        `json:"id"`
	Cluster string        `json:"cluster"`
	Change  ScaleChange   `json:"change"`
	Rule    ScalingRule   `json:"rule"`
	Reason  string        `json:"reason"`
	Status  ScalingStatus `json:"status"`
	Error   string        `json:"error,omitempty"`
	// From and To are the numbers of agents before, and after if all goes well.
	From        int           `json:"from"`
	To          int           `json:"to"`
	Spawner     string        `json:"spawner,omitempty"` // that starts the agents
	Platform    Platform      `json:"platform,omitempty"`
	Agents      []ScaledAgent `json:"agents"`
	Drain       string        `json:"drain_id,omitempty"` // of the agents that stop
	StartedAt   time.Time     `json:"started_at"`
	CompletedAt *time.Time    `json:"completed_at,omitempty"`
}

// ScaledAgent is the part of a scaling action that is about one agent.
type ScaledAgent struct {
	AgentID     string       `json:"agent_id"`
	Spawner     string       `json:"spawner,omitempty"`
	Handle      string       `json:"handle,omitempty"` // on the spawner's platform, such as its process id
	Host        string       `json:"host,omitempty"`
	Status      ScaledStatus `json:"status"`
	Error       string       `json:"error,omitempty"`
	StartedAt   *time.Time   `json:"started_at,omitempty"`
	CompletedAt *time.Time   `json:"completed_at,omitempty"` // when it was online, stopped, or given up
}

// Settle sums up how the agents of an action fared.
func (r *ScalingRecord) Settle() {
	good, why := 0, ""
	for i := range r.Agents {
		switch a := &r.Agents[i]; a.Status {
		case ScaledOnline, ScaledStopped:
			good++
		default:
			if why == "" {
				why = a.AgentID + ": " + a.Error
			}
		}
	}
	switch {
	case good == len(r.Agents):
		r.Status = ScalingSucceeded
	case good > 0:
		r.Status = ScalingPartial
	default:
		r.Status = ScalingFailed
	}
	if r.Error == "" {
		r.Error = why
	}
}
