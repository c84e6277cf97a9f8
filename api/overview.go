package api

import (
	"time"

	"mainstay.dev/mainstay/diagnosis"
	"mainstay.dev/mainstay/fleet"
)

// Overview is the whole fleet at a glance.
type Overview struct {
	At        time.Time              `json:"at" doc:"When it was read."`
	Problems  []diagnosis.Problem    `json:"problems" doc:"What a person should know of, most urgent first. Empty: nothing is wrong."`
	Agents    OverviewAgents         `json:"agents"`
	Tasks     OverviewTasks          `json:"tasks"`
	Clusters  []Cluster              `json:"clusters" doc:"Sorted by name."`
	Lanes     []Lane                 `json:"lanes" doc:"Of the clusters, at most 200; GET /api/v1/agents/queue has all."`
	Failovers []fleet.FailoverRecord `json:"failovers" doc:"The newest ten."`
	Missing   []string               `json:"missing,omitempty" doc:"Parts that could not be read this time, in words."`
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
	Open       int64 `json:"open"`
	Review     int64 `json:"review"`
	DeadLetter int64 `json:"dead_letter"`
}
