package job

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"mainstay.dev/sdk/api"
)

const (
	// startsFor is how long an instance may take at its first start before its job lacks it.
	startsFor = time.Minute
	// revertTold is how long a deployment that failed and was reverted counts as trouble.
	revertTold = time.Hour
	// namedInstances bounds how many instances are named one by one.
	namedInstances = 3
)

// Trouble is what is wrong with the instances of a service or system job; nil: nothing. An instance that was started a
// moment ago, or that a deployment waits for, is not lacking yet.
func (j *Job) Trouble(now time.Time) *api.JobTrouble {
	d := j.Definition()
	if !d.HasInstances() || !d.KeepsRunning() || j.Stopped != nil {
		return nil
	}
	t := &api.JobTrouble{Failed: j.failedDeployment(now)}
	names := j.troubledNames(d)
	t.Wanted, t.Healthy = len(names), min(len(names), j.Passing())
	if j.Paused == nil {
		j.lacking(t, names, now)
	}
	if t.Why == "" && t.Failed == nil {
		return nil
	}
	return t
}

// troubledNames are the names of the instances that there are to be, for all that the job itself knows.
func (j *Job) troubledNames(d *api.JobDefinition) (names []string) {
	if !d.OnEachAgent() {
		names, _ = j.wanted(d, nil)
		return names
	}
	for n := range j.Instances {
		if i := &j.Instances[n]; i.Stopping == "" && !slices.Contains(names, i.Name) {
			names = append(names, i.Name)
		}
	}
	return names
}

// lacking puts in which instances are lacking.
func (j *Job) lacking(t *api.JobTrouble, names []string, now time.Time) {
	if why := j.Waiting(); why != "" && t.Healthy < t.Wanted {
		if now.Sub(j.MissingSince) >= startsFor {
			t.Why, t.Since = why, j.MissingSince
		}
		return
	}
	best := map[string]*api.Instance{}
	for n := range j.Instances {
		i := &j.Instances[n]
		if b := best[i.Name]; i.Stopping == "" && (b == nil || b.Health != api.InstancePassing) {
			best[i.Name] = i
		}
	}
	var reasons []string
	for _, name := range names {
		state, since := troubleOf(best[name], now)
		if state == "" {
			continue
		}
		reasons = append(reasons, "instance "+name+" "+state)
		if !since.IsZero() {
			t.Since = earlier(t.Since, since)
		}
	}
	if more := len(reasons) - namedInstances; more > 0 {
		reasons = append(reasons[:namedInstances], strconv.Itoa(more)+" more")
	}
	t.Why = api.Reasons(reasons...)
}

// troubleOf says how an instance stands that should be healthy by now; empty: it is, or it may still become so.
func troubleOf(i *api.Instance, now time.Time) (state string, since time.Time) {
	switch {
	case i == nil, i.Open() && i.Health == api.InstancePassing, now.Before(i.Due):
		return "", since
	case !i.Open() && i.Ends == 0: // a person ended it, and another takes its place
		return "", since
	case !i.Open():
		return "has ended: " + cmp.Or(i.Why, string(i.Ended)), since
	}
	state = stateOf(i)
	if i.Attempt > 1 || i.Ends > 0 { // since when it goes on like that is not known
		again := max(0, i.Attempt-1) + i.Ends
		return state + ", and was started again " + api.Plural(again, "once", strconv.Itoa(again)+" times"), since
	}
	since = i.Since
	if i.HealthAt.After(since) {
		since = i.HealthAt
	}
	if now.Sub(since) < startsFor {
		return "", time.Time{}
	}
	return state, since
}

// failedDeployment is the newest deployment if it has failed, or the one before if that was just reverted.
func (j *Job) failedDeployment(now time.Time) *api.Deployment {
	if r := j.Deployment(); r == nil || r.Status == api.DeploymentFailed {
		return r
	}
	n := len(j.Deployments)
	if n > 1 && j.Deployments[n-1].Revert {
		if r := j.Deployments[n-2]; r.RevertedTo > 0 && now.Sub(r.EndedAt) < revertTold {
			return &r
		}
	}
	return nil
}
