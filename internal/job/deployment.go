package job

import (
	"cmp"
	"time"

	"mainstay.dev/sdk/api"
)

// DeploymentsKept bounds the deployments that a job keeps.
const DeploymentsKept = 6

func endDeployment(r *api.Deployment, status api.DeploymentStatus, reason string, now time.Time) {
	r.Status, r.Reason, r.EndedAt = status, reason, now
}

// Deployment is the deployment of the version in force, also after its end; nil: that version was not deployed by one.
func (j *Job) Deployment() *api.Deployment {
	if n := len(j.Deployments); n > 0 && j.Deployments[n-1].Version == j.Template {
		return &j.Deployments[n-1]
	}
	return nil
}

// Unpromoted reports whether the version in force is not promoted: canaries have it alone.
func (j *Job) Unpromoted() bool {
	r := j.Deployment()
	return r != nil && r.Promoted == nil && r.Status != api.DeploymentSuccessful
}

// rolling is the deployment that is under way, or nil.
func (j *Job) rolling() *api.Deployment {
	if r := j.Deployment(); r != nil && r.Active() {
		return r
	}
	return nil
}

// held reports whether the deployment of the version in force has failed: old instances stay, and what must be started
// gets the last version that was healthy.
func (j *Job) held() bool {
	r := j.Deployment()
	return r != nil && r.Status == api.DeploymentFailed
}

// overdueAfter is how much later than its deadline a deployment may end: it is a matter of moments.
const overdueAfter = time.Minute

// Overdue reports whether the deployment of the version in force should have failed and has not.
func (j *Job) Overdue(now time.Time) bool {
	r, u := j.rolling(), j.Definition().Updating()
	if r == nil || u == nil || j.waits() {
		return false
	}
	why, _ := j.stuck(r, u, now.Add(-overdueAfter))
	return why != ""
}

// Short reports whether a service has fewer healthy instances than it is to have.
func (j *Job) Short() bool {
	if d := j.Definition(); d == nil || d.Type != api.JobService || j.Stopped != nil || j.Paused != nil {
		return false
	}
	return j.Passing() < j.Count
}

// Passing is how many of its instances are healthy, by their names.
func (j *Job) Passing() int {
	passing := map[string]bool{}
	for n := range j.Instances {
		if i := &j.Instances[n]; i.Open() && i.Stopping == "" && i.Health == api.InstancePassing {
			passing[i.Name] = true
		}
	}
	return len(passing)
}

// MayPromote is why a person cannot promote the canaries now; empty: that is possible.
func (j *Job) MayPromote() string {
	switch r := j.rolling(); {
	case r == nil:
		return "no deployment of the job is under way"
	case j.canaries(j.Definition().Updating()) == 0:
		return "the deployment has no canaries, or was promoted already"
	case r.Status != api.DeploymentWaiting:
		return "the canaries are not healthy yet: promote them when the deployment is waiting"
	}
	return ""
}

// PromoteCanaries lets all other instances follow the canaries. MayPromote must have allowed it.
func (j *Job) PromoteCanaries(by string, now time.Time) { promoteDeployment(j.rolling(), by, now) }

// MayFail is why a person cannot end the deployment now; empty: that is possible.
func (j *Job) MayFail() string {
	if j.rolling() == nil {
		return "no deployment of the job is under way"
	}
	return ""
}

// FailDeployment ends the deployment by a person's decision. MayFail must have allowed it.
func (j *Job) FailDeployment(by, reason string, now time.Time) {
	why := "ended by " + cmp.Or(by, "a person")
	if reason != "" {
		why += ": " + reason
	}
	j.fail(why, now)
}

// Resume lets a job that was paused or stopped go on. Deadlines of its deployment did not run meanwhile.
func (j *Job) Resume(now time.Time) {
	if j.Paused != nil {
		j.prolong(now.Sub(j.Paused.At))
	}
	j.Paused, j.Stopped = nil, nil
}

// prolong moves the deadlines of the deployment that is under way.
func (j *Job) prolong(by time.Duration) {
	r := j.rolling()
	if r == nil {
		return
	}
	r.ProgressAt = r.ProgressAt.Add(by)
	for n := range j.Instances {
		if i := &j.Instances[n]; !i.Due.IsZero() {
			i.Due = i.Due.Add(by)
		}
	}
}

// Require records which required services have no healthy instance. While there are some, no instance is started, and
// deadlines of the deployment do not run.
func (j *Job) Require(missing []string, now time.Time) {
	switch had := len(j.Missing) > 0; {
	case had && len(missing) == 0:
		j.prolong(now.Sub(j.MissingSince))
		j.MissingSince = time.Time{}
	case !had && len(missing) > 0:
		j.MissingSince = now
	}
	j.Missing = missing
}

// waits reports whether no instance is started now, though some may be wanted.
func (j *Job) waits() bool { return j.Paused != nil || len(j.Missing) > 0 }

// Waiting is why no instance is started now; empty: nothing is in the way.
func (j *Job) Waiting() string {
	if len(j.Missing) == 0 {
		return ""
	}
	return Lacking(j.Missing)
}

// TakeHealth records what a hub said of an instance's health. It reports whether that is new.
func (j *Job) TakeHealth(h HealthReport, now time.Time) bool {
	i := j.instance(h.Task)
	if i == nil || !i.Open() || h.Attempt < i.Attempt ||
		h.Health == "" && h.Hub != i.Hub && (i.Hub != "" || h.Why == "") {
		return false // it is over, or its agent has moved to another hub
	}
	changed, left := h.Health != i.Health || h.Attempt != i.Attempt || h.Changes != i.Changes, h.Leaving != i.Leaving
	if changed && i.Proven {
		i.Proven, i.Due = false, time.Time{}
	}
	turned := h.Turns != i.Turns
	if changed || turned {
		i.Health, i.Attempt, i.Changes, i.Turns, i.HealthAt = h.Health, h.Attempt, h.Changes, h.Turns, now
		if i.Last = cmp.Or(h.Why, i.Last); h.Health == api.InstancePassing {
			i.Last = ""
		}
	}
	i.Hub, i.Leaving = h.Hub, h.Leaving
	return changed || turned || left
}

// HealthReport is what a hub says of an instance.
type HealthReport struct {
	Task    string             `json:"task"`
	Attempt int                `json:"attempt"`
	Health  api.InstanceHealth `json:"health,omitempty"` // empty: no agent of the hub has the attempt any more
	Why     string             `json:"why,omitempty"`    // how it ended
	// Changes counts how often it has changed, so that a break between two reports shows.
	Changes int64 `json:"changes,omitempty"`
	// Turns counts how often its checks began to fail or to pass again; odd while they fail.
	Turns   int64  `json:"turns,omitempty"`
	Hub     string `json:"hub"`
	Leaving bool   `json:"leaving,omitempty"` // its agent is being drained
}
