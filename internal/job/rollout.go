package job

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"mainstay.dev/sdk/api"
)

// deploy begins the deployment of the version in force, which differs in more than its count. template was the oldest
// version that instances could have until now.
func (j *Job) deploy(before, d *api.JobDefinition, template int, by string, revert bool, now time.Time) {
	if n := len(j.Deployments); n > 0 && j.Deployments[n-1].Active() {
		why := fmt.Sprintf("version %d takes its place", j.Version)
		endDeployment(&j.Deployments[n-1], api.DeploymentCancelled, why, now)
	}
	j.Same = api.VersionSpan{}
	if before.HasInstances() && before.Update == nil { // nothing has watched it: it counts as healthy
		j.Stable = api.VersionSpan{First: template, Last: j.Version - 1}
	}
	if d.Update == nil {
		return
	}
	if v := j.Find(j.Stable.Last); v != nil && uncounted(v.Definition).Equal(uncounted(d)) {
		j.Same = j.Stable
	}
	for n := range j.Instances {
		j.Instances[n].Proven, j.Instances[n].Due = false, time.Time{}
	}
	j.Deployments = append(j.Deployments, api.Deployment{Version: j.Version, Before: j.Stable.Last, Revert: revert,
		By:     by,
		Status: api.DeploymentRunning, StartedAt: now, ProgressAt: now, Counts: []api.VersionCount{}})
	j.Deployments = j.Deployments[max(0, len(j.Deployments)-DeploymentsKept):]
}

// outdated reports whether an instance has not the version in force, nor one that is the same to it.
func (j *Job) outdated(i *api.Instance) bool { return i.Version < j.Template && !j.Same.Has(i.Version) }

// generation is the version that stands for all that are the same to an instance's.
func (j *Job) generation(i *api.Instance) int {
	switch {
	case !j.outdated(i):
		return j.Version
	case j.Stable.Has(i.Version):
		return j.Stable.Last
	}
	return i.Version
}

// well reports whether an instance does its work: a new one only when it has passed for long enough.
func (j *Job) well(i *api.Instance) bool {
	return i.Open() && i.Stopping == "" && i.Health == api.InstancePassing && (i.Proven || j.outdated(i))
}

// canaries are how many instances may have the new version before it is promoted; 0: all.
func (j *Job) canaries(u *api.JobUpdate) int {
	if r := j.rolling(); r == nil || r.Before == 0 || r.Revert || r.Promoted != nil {
		return 0
	}
	return u.Canary
}

// versionFor is the version with which an instance begins: i has ended, or is nth of those that are wanted and new.
func (j *Job) versionFor(i *api.Instance, nth int) int {
	if j.Find(j.Stable.Last) == nil {
		return j.Version
	}
	if r := j.rolling(); r != nil {
		canaries := j.canaries(j.Definition().Updating())
		if i.Version > 0 && i.Stopping == "" && j.outdated(i) || i.Version == 0 && canaries > 0 && nth >= canaries {
			return j.Stable.Last
		}
	}
	if j.held() {
		return j.Stable.Last
	}
	return j.Version
}

// pair are the instances of one name that are not being stopped, without the successor of one of them.
type pair struct {
	old, new *api.Instance
	ended    *api.Instance // of the new version, which is started again later
	known    bool
}

// rollOut takes the deployment that is under way one step on. It reports whether it put another version in force.
func (j *Job) rollOut(wanted []string, now time.Time) (reverted bool) {
	r := j.rolling()
	switch {
	case r == nil:
		return false
	case j.Stopped != nil:
		endDeployment(r, api.DeploymentCancelled, "the job was stopped", now)
		return false
	case j.waits():
		return false
	}
	u := j.Definition().Updating()
	// Nobody can promote what does not run.
	if j.Definition().Type == api.JobService && len(wanted) == 0 && j.canaries(u) > 0 {
		endDeployment(r, api.DeploymentCancelled, "the service has 0 instances, so there are no canaries to promote", now)
		return false
	}
	pairs := j.pairs(wanted)
	j.prove(pairs, u, now)
	proven := 0
	for _, name := range wanted {
		if p := pairs[name]; p.new != nil && p.new.Proven {
			proven++
		}
	}
	if proven > r.Best {
		r.Best, r.ProgressAt = proven, now
	}
	if why, task := j.stuck(r, u, now); why != "" {
		r.TaskID = task
		return j.fail(why, now)
	}
	phase, limit := wanted, u.MaxParallel
	if canaries := min(j.canaries(u), len(wanted)); canaries > 0 {
		phase, limit = wanted[:canaries], canaries
		j.awaitPromotion(r, u, !slices.ContainsFunc(phase, func(name string) bool {
			p := pairs[name]
			return p.new == nil || !p.new.Proven
		}), now)
		if r.Promoted != nil {
			phase, limit = wanted, u.MaxParallel
		}
	}
	j.replace(pairs, wanted, phase, limit, now)
	if !slices.ContainsFunc(wanted, func(name string) bool {
		p := pairs[name]
		return p.new == nil || !p.new.Proven || p.old != nil && p.old.Stopping == ""
	}) && j.canaries(u) == 0 {
		endDeployment(r, api.DeploymentSuccessful, "", now)
		j.Stable = api.VersionSpan{First: j.Template, Last: j.Version}
		for n := range j.Instances {
			if i := &j.Instances[n]; j.Same.Has(i.Version) {
				i.Version = j.Version
			}
		}
	}
	j.count(r)
	return false
}

// count counts the instances by version.
func (j *Job) count(r *api.Deployment) {
	r.Counts = []api.VersionCount{}
	for n := range j.Instances {
		i := &j.Instances[n]
		if !i.Open() || i.Stopping != "" {
			continue
		}
		at, found := slices.BinarySearchFunc(r.Counts, i.Version,
			func(c api.VersionCount, v int) int { return c.Version - v })
		if !found {
			r.Counts = slices.Insert(r.Counts, at, api.VersionCount{Version: i.Version})
		}
		r.Counts[at].Instances++
		if j.well(i) {
			r.Counts[at].Healthy++
		}
	}
}

// pairs are the instances of the wanted names.
func (j *Job) pairs(wanted []string) map[string]*pair {
	pairs := make(map[string]*pair, len(wanted))
	for _, name := range wanted {
		pairs[name] = &pair{}
	}
	for n := range j.Instances {
		i := &j.Instances[n]
		p := pairs[i.Name]
		if p == nil {
			i.Due = time.Time{} // nobody waits for it
			continue
		}
		p.known = true
		switch {
		case i.Stopping != "":
		case !j.outdated(i) && i.Open():
			p.new = cmp.Or(p.new, i)
		case !j.outdated(i):
			p.ended = i
		case i.Open():
			p.old = cmp.Or(p.old, i)
		}
	}
	return pairs
}

// prove marks the new instances that have passed for long enough.
func (j *Job) prove(pairs map[string]*pair, u *api.JobUpdate, now time.Time) {
	for n := range j.Instances {
		i := &j.Instances[n]
		if p := pairs[i.Name]; p == nil || p.new != i || i.Proven || !isSteady(i) ||
			now.Before(i.HealthAt.Add(u.HealthyAfter.Std())) {
			continue
		}
		i.Proven, i.Due = true, time.Time{}
	}
}

// isSteady reports whether its last check passed too: it may pass although some fail.
func isSteady(i *api.Instance) bool { return i.Health == api.InstancePassing && i.Turns%2 == 0 }

// expect sets by when each new instance of the deployment is to be healthy.
func (j *Job) expect(wanted []string, now time.Time) {
	if j.rolling() == nil || j.waits() {
		return
	}
	awaited := make(map[string]bool, len(wanted))
	for _, name := range wanted {
		awaited[name] = true
	}
	u := j.Definition().Updating()
	for n := range j.Instances {
		i := &j.Instances[n]
		if !awaited[i.Name] || i.Stopping != "" || j.outdated(i) {
			continue
		}
		awaited[i.Name] = false // what relieves it is not awaited yet
		if !i.Proven && i.Due.IsZero() {
			i.Due = now.Add(u.HealthyWithin.Std())
		}
	}
}

// stuck is why the deployment has failed by now, and the task of the instance for which it has; empty: it has not.
func (j *Job) stuck(r *api.Deployment, u *api.JobUpdate, now time.Time) (why, task string) {
	for n := range j.Instances {
		i := &j.Instances[n]
		if i.Stopping != "" || i.Due.IsZero() || now.Before(i.Due) {
			continue
		}
		state := stateOf(i)
		switch {
		case !i.Open():
			state = "has ended: " + cmp.Or(i.Why, string(i.Ended))
		case i.Health == api.InstancePassing:
			state = "has not passed for " + u.HealthyAfter.Std().String() + " without a break"
		}
		return fmt.Sprintf("instance %s was not healthy within %s: it %s", i.Name, u.HealthyWithin.Std(), state), i.TaskID
	}
	if r.Status == api.DeploymentRunning && !now.Before(r.ProgressAt.Add(u.ProgressWithin.Std())) {
		return fmt.Sprintf("no further instance was healthy within %s", u.ProgressWithin.Std()), ""
	}
	return "", ""
}

// stateOf says how an instance stands whose task has not ended.
func stateOf(i *api.Instance) string {
	switch {
	case i.Health == "" && i.Last != "":
		return "fails again and again, last because of this: " + i.Last
	case i.Health == "":
		return "runs on no agent"
	case i.Health != api.InstancePassing && i.Last != "":
		return "is " + string(i.Health) + ", after it failed because of this: " + i.Last
	}
	return "is " + string(i.Health)
}

// awaitPromotion makes the deployment wait for a person while the canaries are healthy, unless they promote themselves.
func (j *Job) awaitPromotion(r *api.Deployment, u *api.JobUpdate, healthy bool, now time.Time) {
	switch {
	case healthy && u.Promote == api.PromoteAuto:
		promoteDeployment(r, "", now)
	case healthy:
		r.Status = api.DeploymentWaiting
	case r.Status == api.DeploymentWaiting:
		r.Status, r.ProgressAt = api.DeploymentRunning, now
	}
}

func promoteDeployment(r *api.Deployment, by string, now time.Time) {
	r.Promoted = &api.Decision{Action: "promote", By: by, At: now}
	r.Status, r.ProgressAt = api.DeploymentRunning, now
}

// replace starts new instances and stops old ones, unhealthy ones first. No more than limit are under way at a time,
// and a healthy one is stopped only where enough others are healthy.
func (j *Job) replace(pairs map[string]*pair, wanted, phase []string, limit int, now time.Time) {
	r, u := j.rolling(), j.Definition().Updating()
	healthy, busy := 0, 0
	for _, name := range wanted {
		p := pairs[name]
		for _, i := range []*api.Instance{p.old, p.new} {
			if i != nil && j.well(i) {
				healthy++
			}
		}
		if p.new != nil && !p.new.Proven || p.ended != nil || p.known && p.new == nil && p.old == nil {
			busy++
		}
	}
	stopFirst := u.Order == api.StopFirst && (j.canaries(u) == 0 || j.Definition().OnEachAgent())
	spare := len(wanted)
	if stopFirst {
		spare -= limit
	}
	stop := func(i *api.Instance) bool {
		if j.well(i) {
			if healthy-1 < spare {
				return false
			}
			healthy--
		}
		i.Stopping = "version " + strconv.Itoa(j.Version) + " takes its place"
		return true
	}
	order := slices.Clone(phase)
	rank := func(name string) int {
		if old := pairs[name].old; old != nil && !j.well(old) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(order, func(a, b string) int { return rank(a) - rank(b) })
	var begin []string
	for _, name := range order {
		p := pairs[name]
		sick := p.old != nil && r.Revert && !j.well(p.old) // it is what the revert is for
		switch {
		case p.old == nil:
		case p.new != nil && p.new.Proven && (j.canaries(u) == 0 || stopFirst):
			stop(p.old)
		case p.new != nil || p.ended != nil || busy >= limit && !sick:
		case stopFirst:
			if stop(p.old) {
				busy++
			}
		default:
			begin = append(begin, name)
			busy++
		}
		if sick && p.old.Stopping == "" {
			stop(p.old)
		}
	}
	for _, name := range begin {
		j.Instances = append(j.Instances, j.next(api.Instance{Name: name}, j.Version, now))
	}
}

// fail ends the deployment that is under way. It reports whether the version before was put in force again.
func (j *Job) fail(why string, now time.Time) bool {
	r := j.rolling()
	j.count(r)
	endDeployment(r, api.DeploymentFailed, why, now)
	v := j.Find(r.Before)
	if v == nil || r.Revert || !j.Definition().Updating().Revert {
		return false
	}
	r.RevertedTo = v.Version
	return j.put(*v.Definition, fmt.Sprintf("the deployment of version %d, which failed", r.Version), true, false, now)
}

// nextRoll is when the deployment continues or fails if no news comes; zero: never.
func (j *Job) nextRoll() (at time.Time) {
	r := j.rolling()
	if r == nil {
		return at
	}
	u := j.Definition().Updating()
	if r.Status == api.DeploymentRunning {
		at = r.ProgressAt.Add(u.ProgressWithin.Std())
	}
	for n := range j.Instances {
		i := &j.Instances[n]
		if i.Due.IsZero() || i.Stopping != "" {
			continue
		}
		at = earlier(at, i.Due)
		if i.Open() && isSteady(i) {
			at = earlier(at, i.HealthAt.Add(u.HealthyAfter.Std()))
		}
	}
	return at
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
