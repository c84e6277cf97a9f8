package api

import "time"

// Health is how a process stands.
type Health struct {
	Status        string   `json:"status" enum:"healthy,unhealthy"`
	Roles         []string `json:"roles,omitempty" doc:"What the process does."`
	Version       string   `json:"version,omitempty"`
	UptimeSeconds int64    `json:"uptime_seconds"`
	// MetadataStoreConnected is found by asking Temporal.
	MetadataStoreConnected bool `json:"metadata_store_connected" doc:"Temporal, where all state is kept, answers."`

	HubID                string     `json:"hub_id,omitempty" doc:"This and what follows only of a hub."`
	Agents               *int       `json:"agents,omitempty" doc:"Agents that have a session here."`
	ActiveLeases         *int       `json:"active_leases,omitempty" doc:"Leaderships and shards that its agents hold."`
	LastHeartbeatSuccess *bool      `json:"last_heartbeat_success,omitempty" doc:"Temporal took a heartbeat of the hub's own lease within the last 5 s. Without, it renews no agent's lease."`
	LastHeartbeat        *time.Time `json:"last_heartbeat,omitempty" doc:"When Temporal last took one."`
}
