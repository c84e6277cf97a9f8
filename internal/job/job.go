package job

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

const (
	// VersionsKept bounds the versions that a job keeps of its definition.
	VersionsKept = 6
	// versionsBytes bounds their size as JSON, unless only two are left: Temporal takes 2 MiB of a job at most.
	versionsBytes = 1 << 20
)

// Job is a definition with its versions, which decides about its runs and instances.
type Job api.JobState

// Definition is the definition in force; nil before the first.
func (j *Job) Definition() *api.JobDefinition {
	if len(j.Versions) == 0 {
		return nil
	}
	return j.Versions[len(j.Versions)-1].Definition
}

// Apply puts a definition in force. One that equals the definition in force changes nothing.
func (j *Job) Apply(d api.JobDefinition, by string, now time.Time) (changed bool) {
	return j.put(d, by, false, false, now)
}

// DeploysAgain reports whether a definition differs only in update from one whose deployment has failed.
func (j *Job) DeploysAgain(d *api.JobDefinition) bool {
	present := j.Definition()
	return j.held() && present.Update != nil && d.Update != nil && *d.Update != *present.Update &&
		uncounted(present).Equal(uncounted(d))
}

// DeployAgain is Apply for a definition that DeploysAgain.
func (j *Job) DeployAgain(d api.JobDefinition, by string, now time.Time) (changed bool) {
	return j.put(d, by, false, true, now)
}

// Revert puts the definition of an earlier version in force again, at once and without canaries.
func (j *Job) Revert(d api.JobDefinition, by string, now time.Time) (changed bool) {
	return j.put(d, by, true, false, now)
}

func (j *Job) put(d api.JobDefinition, by string, revert, again bool, now time.Time) (changed bool) {
	present := j.Definition()
	if present != nil && present.Equal(&d) {
		return false
	}
	j.Version++
	next := api.JobVersion{Version: j.Version, Definition: &d, At: now, By: by}
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
func (j *Job) origin(d *api.JobDefinition) int {
	for _, v := range slices.Backward(j.Versions) {
		if v.Definition.Equal(d) {
			return cmp.Or(v.Reverts, v.Version)
		}
	}
	return 0
}

// RevertsTo is the version for a revert that names none: the last one before the present definition was applied that
// differs in more than a count and was not unhealthy. A revert thus goes on where the one before ended, and never back
// to what that one left. Else it says why a version must be named.
func (j *Job) RevertsTo() (v *api.JobVersion, why string) {
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
func (j *Job) wasWell(v *api.JobVersion) bool {
	for _, r := range slices.Backward(j.Deployments) {
		if r.Version <= v.Version {
			return r.Status == api.DeploymentSuccessful || v.Definition.Update == nil
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

// Find is a version that is kept; nil for none.
func (j *Job) Find(version int) *api.JobVersion {
	if i := slices.IndexFunc(j.Versions, func(v api.JobVersion) bool { return v.Version == version }); i >= 0 {
		return &j.Versions[i]
	}
	return nil
}
