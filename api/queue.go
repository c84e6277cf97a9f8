package api

import (
	"mainstay.dev/mainstay/fleet"
)

// Lane is a lane of a cluster as clients see it: what waits in it, and who takes it.
type Lane struct {
	Cluster   string `json:"cluster"`
	Lane      string `json:"lane" doc:"default, cap/<capability>+<capability>, shard/<number> or agent/<id>."`
	TaskQueue string `json:"task_queue" doc:"Its activity task queue in Temporal."`
	Backlog
	Priorities []PriorityBacklog `json:"priorities" doc:"The same by priority, first ones first. Priorities that were not used of late are left out."`
	Agents     int               `json:"agents" doc:"Online agents that serve it, or would if it were not paused."`
	Slots      int               `json:"slots" doc:"Tasks that they run at a time, of all lanes that they serve."`
	BusySlots  *int              `json:"busy_slots,omitempty" doc:"Of those, in use now. Absent when not known of every agent."`
	Paused     *Pause            `json:"paused,omitempty" doc:"What holds it back: its own pause or its cluster's."`
}

// Backlog is what waits in a lane. It is approximate.
type Backlog struct {
	Depth        int64          `json:"depth" doc:"About how many tasks wait."`
	OldestAge    fleet.Duration `json:"oldest_age,omitempty" doc:"About how long the first of them waits."`
	AddRate      float64        `json:"add_rate" doc:"Tasks that came, a second, over the last 30 s."`
	DispatchRate float64        `json:"dispatch_rate" doc:"Tasks that were taken, a second, over the last 30 s."`
}

// PriorityBacklog is the part of a lane's backlog with one priority.
type PriorityBacklog struct {
	Priority int    `json:"priority"`
	Name     string `json:"name"`
	Backlog
}
