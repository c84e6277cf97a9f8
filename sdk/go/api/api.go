// Package api has the bodies that clients of the REST API send and get, as JSON. Their doc, enum and other tags make
// the OpenAPI document. Package gateway answers them; package client sends them.
package api

import (
	"time"
)

// Overview is the whole fleet at a glance.
type Overview struct {
	At        time.Time        `json:"at" doc:"When it was read."`
	Problems  []Problem        `json:"problems" doc:"What a person should know of, most urgent first. Empty: nothing is wrong."`
	Agents    OverviewAgents   `json:"agents"`
	Tasks     OverviewTasks    `json:"tasks"`
	Jobs      OverviewJobs     `json:"jobs"`
	Clusters  []Cluster        `json:"clusters" doc:"Sorted by name."`
	Lanes     []Lane           `json:"lanes" doc:"Of the clusters, at most 200; GET /api/v1/agents/queue has all."`
	Failovers []FailoverRecord `json:"failovers" doc:"The newest ten."`
	Missing   []string         `json:"missing,omitempty" doc:"Parts that could not be read this time, in words."`
}

// OverviewAgents counts agents.
type OverviewAgents struct {
	Online      int `json:"online"`
	Suspect     int `json:"suspect"`
	Offline     int `json:"offline"`
	Draining    int `json:"draining"`
	Maintenance int `json:"maintenance"`
	Slots       int `json:"slots" doc:"Tasks that the online agents run at a time."`
	Running     int `json:"running" doc:"Tasks that they run now, as far as their hubs have told."`
}

// OverviewTasks counts tasks that have not ended.
type OverviewTasks struct {
	Open       int64 `json:"open" doc:"Those that do not wait for a person."`
	Review     int64 `json:"review"`
	DeadLetter int64 `json:"dead_letter"`
}

// OverviewJobs counts jobs with instances that a person should know of.
type OverviewJobs struct {
	Troubled           int `json:"troubled" doc:"Jobs that lack instances, or whose deployment has failed."`
	Lacking            int `json:"lacking" doc:"Services and system jobs that have fewer healthy instances than they should have by now."`
	FailedDeployments  int `json:"failed_deployments" doc:"Jobs whose newest deployment has failed, or was reverted within the last hour because it failed."`
	WaitingDeployments int `json:"waiting_deployments" doc:"Jobs whose healthy canaries wait for their promotion."`
}

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

// Session says who asks.
type Session struct {
	Security  bool         `json:"security" doc:"false: security is off, and everybody may do everything."`
	Kind      IdentityKind `json:"kind" enum:"local,token,certificate"`
	Name      string       `json:"name,omitempty"`
	Role      AccessRole   `json:"role" enum:"viewer,operator,admin"`
	Tenant    string       `json:"tenant,omitempty" doc:"The only one whose tasks are shown. Absent: all."`
	ExpiresAt *time.Time   `json:"expires_at,omitempty" doc:"When a browser must sign in again."`
	// SessionKey is only in the answer to signing in.
	SessionKey string `json:"session_key,omitempty" doc:"Of the answer to signing in: send it with each request of the session, in the header X-Mainstay-Session-Key."`
}

// CloudEvent is an event as listeners get it: CloudEvents 1.0, structured JSON.
type CloudEvent struct {
	SpecVersion     string    `json:"specversion" enum:"1.0"`
	ID              string    `json:"id" doc:"The same event has the same id, however often and by whichever gateway it is told."`
	Source          string    `json:"source" doc:"The cluster that it is of, as a path of this API."`
	Type            EventType `json:"type" example:"dev.mainstay.agent.lost"`
	Subject         string    `json:"subject,omitempty" example:"agents/agent-1" doc:"What it is about: agents/…, tasks/…, failovers/…, drains/…, schedules/… or lanes/…"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype" enum:"application/json"`
	Data            EventData `json:"data"`
}

// Found is something that a search found.
type Found struct {
	Kind    string `json:"kind" enum:"agent,array,bulk,cluster,drain,failover,job,run,schedule,service,task"`
	ID      string `json:"id" doc:"Its name or id."`
	Type    string `json:"type,omitempty" doc:"Of tasks, arrays and schedules the type of task, of jobs theirs."`
	Cluster string `json:"cluster,omitempty"`
}

// SearchResult is the answer to a search.
type SearchResult struct {
	Found []Found `json:"found" doc:"What has the text, those first that are called so."`
	Near  []Found `json:"near" doc:"If nothing was found: what is spelt nearly so."`
}
