package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

const (
	// VersionsKept bounds the versions that a job keeps of its definition.
	VersionsKept = 6
	// versionsBytes bounds their size as JSON, unless only two are left: Temporal takes 2 MiB of a job at most.
	versionsBytes = 1 << 20
)

// Job is a definition with its versions, which decides about its runs and instances.
type Job State

// State is a definition with its versions.
type State struct {
	Name      string    `json:"name"`
	Version   int       `json:"version" doc:"Of the definition in force; each that differs counts one more."`
	Versions  []Version `json:"versions" doc:"The newest 6, or fewer if these have more than 1 MiB. The one in force is the last."`
	Paused    *Decision `json:"paused,omitempty" doc:"Who paused it: nothing starts its runs by itself, and dispatches are refused."`
	Active    []Holding `json:"active,omitempty" doc:"With concurrency: the runs that go, and those that wait."`
	Schedules int       `json:"schedules,omitempty" doc:"How many schedules start its runs."`
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
	Stable      Span         `json:"stable,omitzero" doc:"Of a job with update: the versions with which all instances were healthy last."`
	Same        Span         `json:"same,omitzero" doc:"Earlier versions that are equal to the one in force: their instances stay."`
	// Serial makes the ids of instances' tasks unique, also if a job of this name is made anew.
	Serial int64 `json:"serial,omitempty"`
}

// Version is one version of a definition.
type Version struct {
	Version    int         `json:"version"`
	Definition *Definition `json:"definition,omitempty"`
	At         time.Time   `json:"at"`
	By         string      `json:"by,omitempty"`
	Reverts    int         `json:"reverts,omitempty" doc:"The earlier version whose definition it put in force again."`
}

// Holding is a run that counts against the job's concurrency.
type Holding struct {
	Run     string `json:"run"`
	Key     string `json:"key,omitempty"`
	Waiting bool   `json:"waiting,omitempty"`
	// Cancelled: another run takes its place when it has ended.
	Cancelled bool `json:"cancelled,omitempty"`
}

// Definition is the definition in force; nil before the first.
func (j *Job) Definition() *Definition {
	if len(j.Versions) == 0 {
		return nil
	}
	return j.Versions[len(j.Versions)-1].Definition
}

// Apply puts a definition in force. One that equals the definition in force changes nothing.
func (j *Job) Apply(d Definition, by string, now time.Time) (changed bool) {
	return j.put(d, by, false, false, now)
}

// DeploysAgain reports whether a definition differs only in update from one whose deployment has failed.
func (j *Job) DeploysAgain(d *Definition) bool {
	present := j.Definition()
	return j.held() && present.Update != nil && d.Update != nil && *d.Update != *present.Update &&
		uncounted(present).Equal(uncounted(d))
}

// DeployAgain is Apply for a definition that DeploysAgain.
func (j *Job) DeployAgain(d Definition, by string, now time.Time) (changed bool) {
	return j.put(d, by, false, true, now)
}

// Revert puts the definition of an earlier version in force again, at once and without canaries.
func (j *Job) Revert(d Definition, by string, now time.Time) (changed bool) {
	return j.put(d, by, true, false, now)
}

func (j *Job) put(d Definition, by string, revert, again bool, now time.Time) (changed bool) {
	present := j.Definition()
	if present != nil && present.Equal(&d) {
		return false
	}
	j.Version++
	next := Version{Version: j.Version, Definition: &d, At: now, By: by}
	if revert {
		next.Reverts = j.origin(&d)
	}
	j.settleInstances(present, &d, by, revert, again, now)
	j.Versions = append(j.Versions, next)
	for len(j.Versions) > VersionsKept || len(j.Versions) > 2 && j.versionsSize() > versionsBytes {
		oldest := 0
		if j.Versions[0].Version == j.Stable.Last {
			oldest = 1 // instances may still begin with it
		}
		j.Versions = slices.Delete(j.Versions, oldest, oldest+1)
	}
	return true
}

// origin is the version that a definition was applied as last; 0: it is not kept.
func (j *Job) origin(d *Definition) int {
	for _, v := range slices.Backward(j.Versions) {
		if v.Definition.Equal(d) {
			return cmp.Or(v.Reverts, v.Version)
		}
	}
	return 0
}

// RevertsTo is the version that a revert puts in force which names none: the last one before the present definition was
// applied that differs in more than a count and was not unhealthy. A revert thus goes on where the one before ended,
// and never back to what that one left. Else it says why a version must be named.
func (j *Job) RevertsTo() (v *Version, why string) {
	if r := j.rolling(); r != nil && r.Revert {
		return nil, fmt.Sprintf("a revert is under way, as version %d: name the version that you want instead", r.Version)
	}
	present := j.Find(j.Version)
	if present == nil {
		return nil, "the job has no version yet"
	}
	applied := cmp.Or(present.Reverts, present.Version)
	for n := range slices.Backward(j.Versions) {
		v := &j.Versions[n]
		if v.Version < applied && v.Definition != nil && j.wasWell(v) && !sameWork(v.Definition, present.Definition) {
			return v, ""
		}
	}
	return nil, fmt.Sprintf("no version is kept that was healthy before version %d and differs from it: name a version",
		applied)
}

// wasWell reports whether nothing is known against a version: its deployment, if it had one, was successful.
func (j *Job) wasWell(v *Version) bool {
	for _, r := range slices.Backward(j.Deployments) {
		if r.Version <= v.Version {
			return r.Status == DeploymentSuccessful || v.Definition.Update == nil
		}
	}
	return true
}

//workflowcheck:ignore
func (j *Job) versionsSize() int {
	text, err := json.Marshal(j.Versions)
	if err != nil {
		return versionsBytes + 1
	}
	return len(text)
}

// Equal reports whether both mean the same. encoding/json writes the same text for the same value.
//
//workflowcheck:ignore
func (d *Definition) Equal(other *Definition) bool {
	one, err := json.Marshal(d)
	two, otherErr := json.Marshal(other)
	return err == nil && otherErr == nil && bytes.Equal(one, two)
}

// Find is a version that is kept; nil for none.
func (j *Job) Find(version int) *Version {
	if i := slices.IndexFunc(j.Versions, func(v Version) bool { return v.Version == version }); i >= 0 {
		return &j.Versions[i]
	}
	return nil
}
