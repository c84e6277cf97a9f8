package api

import (
	"bytes"
	"encoding/json"
	"time"
)

// JobState is a definition with its versions.
type JobState struct {
	Name      string       `json:"name"`
	Version   int          `json:"version" doc:"Of the definition in force; each that differs counts one more."`
	Versions  []JobVersion `json:"versions" doc:"The newest 6, or fewer if these have more than 1 MiB. The one in force is the last."`
	Paused    *Decision    `json:"paused,omitempty" doc:"Who paused it: nothing starts its runs by itself, and dispatches are refused."`
	Active    []ActiveRun  `json:"active,omitempty" doc:"With concurrency: the runs that go, and those that wait."`
	Schedules int          `json:"schedules,omitempty" doc:"How many schedules start its runs."`
	// Unscheduled is why Temporal's schedules are not as the definition has them.
	Unscheduled string    `json:"unscheduled,omitempty" doc:"Why its schedules cannot be written as the definition has them. Tried again every 10 minutes, and with each new version."`
	Events      []string  `json:"events,omitempty" doc:"The types of the events that start its runs."`
	CreatedAt   time.Time `json:"created_at"`
	// The rest is of jobs with instances.
	Count     int        `json:"count,omitempty" doc:"Of a service: how many instances there are to be."`
	Stopped   *Decision  `json:"stopped,omitempty" doc:"Who stopped its instances."`
	Instances []Instance `json:"instances,omitempty"`
	// Missing have been so since MissingSince.
	Missing      []string  `json:"missing,omitempty" doc:"Required services that have no healthy instance: until they have, no instance is started."`
	MissingSince time.Time `json:"missing_since,omitzero"`
	// Template is the version that instances must have at least: only their count has changed since.
	Template    int          `json:"template,omitempty"`
	Deployments []Deployment `json:"deployments,omitempty" doc:"Of a job with update: how its newest versions took the place of those before, the newest last."`
	Stable      VersionSpan  `json:"stable,omitzero" doc:"Of a job with update: the versions with which all instances were healthy last."`
	Same        VersionSpan  `json:"same,omitzero" doc:"Earlier versions that are equal to the one in force: their instances stay."`
	// Serial makes the ids of instances' tasks unique, also if a job of this name is made anew.
	Serial int64 `json:"serial,omitempty"`
}

// JobVersion is one version of a definition.
type JobVersion struct {
	Version    int            `json:"version"`
	Definition *JobDefinition `json:"definition,omitempty"`
	At         time.Time      `json:"at"`
	By         string         `json:"by,omitempty"`
	Reverts    int            `json:"reverts,omitempty" doc:"The earlier version whose definition it put in force again."`
}

// ActiveRun is a run that counts against the job's concurrency.
type ActiveRun struct {
	Run     string `json:"run"`
	Key     string `json:"key,omitempty"`
	Waiting bool   `json:"waiting,omitempty"`
	// Cancelled: another run takes its place when it has ended.
	Cancelled bool `json:"cancelled,omitempty"`
}

// Equal reports whether both mean the same. encoding/json writes the same text for the same value.
//
//workflowcheck:ignore
func (d *JobDefinition) Equal(other *JobDefinition) bool {
	one, err := json.Marshal(d)
	two, otherErr := json.Marshal(other)
	return err == nil && otherErr == nil && bytes.Equal(one, two)
}

// JobTrouble is what a person should know of a job whose instances are to run all the time.
type JobTrouble struct {
	Healthy int         `json:"healthy" doc:"How many of its instances are healthy."`
	Wanted  int         `json:"wanted" doc:"How many there are to be."`
	Why     string      `json:"why,omitempty" doc:"Which instances it lacks, and how they stand. Absent: it lacks none that it should have by now."`
	Since   time.Time   `json:"since,omitzero" doc:"Since when, where the job knows it."`
	Failed  *Deployment `json:"failed,omitempty" doc:"The deployment that has failed, if one has since the last that did not."`
}
