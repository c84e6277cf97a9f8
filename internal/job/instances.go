package job

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// InstanceMark stands between a job's name and an instance's in the id of its task.
const InstanceMark = StepMark + StepMark

// Bounds of instances.
const (
	MaxCount = 1000 // of a service
	// maxInstanceWhy bounds in bytes why an instance has ended or is stopped: a job keeps it of each, and JSON may
	// take six times as much. Its task has all of it.
	maxInstanceWhy = 100
	// maxAway is how long an instance of a sysbatch job waits for its agent.
	maxAway = 10 * 365 * 24 * time.Hour
	// instanceBackoff and its limit space the starts of an instance that ends again and again.
	instanceBackoff      = time.Second
	instanceBackoffLimit = 5 * time.Minute
)

// TaskOf is the task of an instance.
func TaskOf(d *api.JobDefinition, i *api.Instance) api.TaskSpec {
	task, place := *d.Instances.Task, api.InstancePlace{}
	if d.Instances.Place != nil {
		place = *d.Instances.Place
	}
	task.Cluster, task.Tenant = d.Cluster, d.Tenant
	task.Priority = cmp.Or(task.Priority, d.Priority)
	task.RequiredCapabilities, task.Agent, task.Affinity = place.Capabilities, place.Agent, place.Affinity
	task.Place = place.Demand
	if len(d.Labels) > 0 {
		task.Labels = maps.Clone(d.Labels)
		maps.Copy(task.Labels, d.Instances.Task.Labels)
	}
	task.Retry, task.Recovery, task.KeepRunning = d.Retry, d.Recovery, d.KeepsRunning()
	task.RetrySafety = cmp.Or(d.Safety, api.Idempotent)
	switch {
	case d.Type == api.JobSysbatch:
		task.ExpiresIn = api.Duration(maxAway)
	case d.Type == api.JobSystem && d.Recovery == nil:
		task.Recovery = new(api.DefaultRecovery(api.LocalRestart, true))
	}
	if d.OnEachAgent() {
		task.Agent = i.Name
	}
	return task
}

// Agents are those of a job's cluster that may have an instance, by id.
type Agents struct {
	// Eligible are the agents that should have one each, if the job's type is for that.
	Eligible []string `json:"eligible,omitempty"`
	// Away keep the one that they have: they are not connected now, or out of service.
	Away []string `json:"away,omitempty"`
}

// AgentsFor finds the agents of a cluster that may have an instance of a job. A job does not learn of agents in a
// cluster that is for other tenants by now.
func AgentsFor(c *cluster.Cluster, d *api.JobDefinition) (a Agents) {
	if !c.Config.IsFor(d.Tenant) {
		return a
	}
	t := TaskOf(d, &api.Instance{})
	for i := range c.Members {
		m := &c.Members[i]
		switch p := d.Instances.Place; {
		case p != nil && (p.Agent != "" && p.Agent != m.AgentID || p.Zone != "" && p.Zone != m.Zone),
			!m.Handles(t.Type), !api.HasAll(m.Capabilities, t.RequiredCapabilities),
			!m.EndsTree(t.Type, t.Safety()), !task.FitsOn(&t.Place, m.Resources):
		case m.Serving() && c.Cordons.Of(m.AgentID) == nil:
			a.Eligible = append(a.Eligible, m.AgentID)
		default:
			a.Away = append(a.Away, m.AgentID)
		}
	}
	return a
}

// Change is what is to be done so that a job has the instances that it should have.
type Change struct {
	Start []api.Instance
	Stop  []api.Instance
}

// Plan decides which instances are to be started and stopped, and keeps that in the job. agents are nil while they are
// not known. What it said before and was not Done, it says again.
func (j *Job) Plan(agents *Agents, now time.Time) (change Change) {
	d := j.Definition()
	wanted, known := j.wanted(d, agents)
	if !known {
		return change
	}
	if j.rollOut(wanted, now) {
		return j.Plan(agents, now)
	}
	j.relieve(d, now)
	keep := map[string]bool{}
	for _, name := range wanted {
		keep[name] = true
	}
	if agents != nil && j.Stopped == nil {
		for _, name := range agents.Away {
			keep[name] = true
		}
	}
	j.Instances = slices.DeleteFunc(j.Instances, func(i api.Instance) bool {
		held := i.Stopping != "" && now.Before(i.NextAt)
		return !i.Open() && !keep[i.Name] && d.Type != api.JobSysbatch && !held
	})
	j.dropReplaced()
	present := map[string]bool{}
	for n := range j.Instances {
		i := &j.Instances[n]
		present[i.Name] = true
		if !i.Open() && keep[i.Name] && j.due(d, i, now) && !j.waits() {
			*i = j.next(*i, j.versionFor(i, 0), now)
		}
		switch {
		case !i.Open() || i.Stopping != "":
		case !keep[i.Name]:
			i.Stopping = j.whyStopped(d)
		case j.held():
			if !j.outdated(i) && j.runs(i.Name, true) {
				i.Stopping = "the deployment of its version has failed"
			}
		case j.outdated(i) && j.rolling() == nil:
			i.Stopping = "version " + strconv.Itoa(j.Version) + " takes its place"
		}
		switch {
		case !i.Open() || i.Asked:
		case i.Stopping != "":
			change.Stop = append(change.Stop, *i)
		case !i.Started && len(j.Missing) == 0:
			change.Start = append(change.Start, *i)
		}
	}
	for nth, name := range wanted {
		if present[name] || j.waits() {
			continue
		}
		j.Instances = append(j.Instances, j.next(api.Instance{Name: name}, j.versionFor(&api.Instance{}, nth), now))
		change.Start = append(change.Start, j.Instances[len(j.Instances)-1])
	}
	j.expect(wanted, now)
	return change
}

// dropReplaced forgets instances that have ended and whose place another has. While a deployment is under way, one that
// was not stopped keeps its place beside one of another version.
func (j *Job) dropReplaced() {
	best, rolling := map[string]int{}, j.rolling() != nil
	rank := func(i *api.Instance) (rank int) {
		if i.Stopping == "" {
			rank = 2
		}
		if i.Open() {
			rank++
		}
		return rank
	}
	for n := range j.Instances {
		i := &j.Instances[n]
		if before, any := best[i.Name]; !any || rank(i) >= rank(&j.Instances[before]) {
			best[i.Name] = n
		}
	}
	kept := j.Instances[:0]
	for n, i := range j.Instances {
		if i.Open() || best[i.Name] == n || rolling && i.Stopping == "" && !j.runs(i.Name, j.outdated(&i)) {
			kept = append(kept, i)
		}
	}
	j.Instances = kept
}

// relieve starts a successor of each instance of a service whose agent is being drained, and stops the one that is not
// needed any more: the old one when the new one passes, or the new one when the drain was cancelled.
func (j *Job) relieve(d *api.JobDefinition, now time.Time) {
	if d.Type != api.JobService || j.waits() || j.Stopped != nil {
		return
	}
	type place struct {
		name    string
		version int
	}
	at := func(i *api.Instance) place { return place{i.Name, j.generation(i)} }
	newest := map[place]int{}
	for n := range j.Instances {
		if i := &j.Instances[n]; i.Stopping == "" {
			newest[at(i)] = n
		}
	}
	for n := range j.Instances {
		i := &j.Instances[n]
		last := newest[at(i)]
		switch {
		case !i.Open() || i.Stopping != "":
		case last == n && i.Leaving:
			j.Instances = append(j.Instances, j.next(api.Instance{Name: i.Name}, i.Version, now))
		case last == n:
		case !i.Leaving:
			j.Instances[last].Stopping = "its agent is not drained any more"
		case j.Instances[last].Open() && j.Instances[last].Health == api.InstancePassing:
			i.Stopping = "its agent is drained, and another has taken its place"
		}
	}
}

// runs reports whether an instance of a name runs and is not to be stopped: one that is outdated, or one that is not.
func (j *Job) runs(name string, outdated bool) bool {
	return slices.ContainsFunc(j.Instances, func(i api.Instance) bool {
		return i.Name == name && i.Open() && i.Stopping == "" && j.outdated(&i) == outdated
	})
}

// wanted are the names of the instances that there should be; known is false where they are not known.
func (j *Job) wanted(d *api.JobDefinition, agents *Agents) (names []string, known bool) {
	switch {
	case !d.HasInstances():
		return nil, false
	case j.Stopped != nil:
		return nil, true
	case j.complete():
		return nil, true // no agent that comes later gets one
	case !d.OnEachAgent():
		for n := range j.Count {
			names = append(names, strconv.Itoa(n))
		}
		return names, true
	case agents == nil:
		return nil, false
	}
	return agents.Eligible, true
}

func (j *Job) whyStopped(d *api.JobDefinition) string {
	switch {
	case j.Stopped != nil:
		return cmp.Or(api.Shorten(j.Stopped.Reason, maxInstanceWhy), "the job is stopped")
	case d.OnEachAgent():
		return "its agent left the job's agents"
	}
	return "the job has fewer instances now"
}

// due reports whether an instance that has ended is to be started again now. One of a sysbatch job is only for a new
// version.
func (j *Job) due(d *api.JobDefinition, i *api.Instance, now time.Time) bool {
	if d.Type == api.JobSysbatch && i.Stopping == "" {
		return i.Version < j.Template
	}
	return !now.Before(i.NextAt)
}

// next is the instance that takes the place of another.
func (j *Job) next(i api.Instance, version int, now time.Time) api.Instance {
	j.Serial++
	next := api.Instance{Name: i.Name, Version: version, Since: now, Ends: i.Ends,
		TaskID: j.Name + InstanceMark + i.Name + "." + strconv.FormatInt(j.Serial, 36)}
	if i.Version == version {
		next.Due = i.Due
	}
	next.Canary = version == j.Version && j.canaries(j.Definition().Updating()) > 0
	return next
}

// Done records that a change was made, and that the tasks of gone do not exist.
func (j *Job) Done(change Change, gone []string, now time.Time) {
	for _, started := range change.Start {
		if i := j.instance(started.TaskID); i != nil {
			i.Started = true
		}
	}
	for _, stopped := range change.Stop {
		if i := j.instance(stopped.TaskID); i != nil {
			i.Asked = true
		}
	}
	for _, task := range gone {
		j.EndInstance(task, api.TaskCancelled, "", now)
	}
}

// EndInstance records the end of an instance's task. One that ends soon, and was not stopped, is started again later
// and later.
func (j *Job) EndInstance(taskID string, status api.TaskStatus, why string, now time.Time) {
	i := j.instance(taskID)
	if i == nil || !i.Open() {
		return
	}
	i.Ended, i.Why, i.NextAt = cmp.Or(status, api.TaskFailed), api.Shorten(why, maxInstanceWhy), now
	asked := i.Stopping != "" || status == api.TaskCancelled // nobody's failure
	if asked || now.Sub(i.Since) > instanceBackoffLimit {
		i.Ends = 0
	}
	if !asked {
		i.Ends++
		i.NextAt = now.Add(task.Backoff(api.RetryPolicy{InitialInterval: api.Duration(instanceBackoff),
			MaxInterval: api.Duration(instanceBackoffLimit)}, taskID, i.Ends))
	}
}

// Hold makes the successor of an instance that has ended wait: an agent may go on with the old one until then.
func (j *Job) Hold(task string, until time.Time) {
	if i := j.instance(task); i != nil && until.After(i.NextAt) {
		i.NextAt = until
	}
}

func (j *Job) instance(task string) *api.Instance {
	n := slices.IndexFunc(j.Instances, func(i api.Instance) bool { return i.TaskID == task })
	if n < 0 {
		return nil
	}
	return &j.Instances[n]
}

// FindInstance is the newest instance with a name; nil: there is none.
func (j *Job) FindInstance(name string) *api.Instance {
	for n := len(j.Instances) - 1; n >= 0; n-- {
		if j.Instances[n].Name == name {
			return &j.Instances[n]
		}
	}
	return nil
}

// OpenTasks are the tasks of instances that have not ended.
func (j *Job) OpenTasks() (tasks []string) {
	for n := range j.Instances {
		if i := &j.Instances[n]; i.Open() && i.Started {
			tasks = append(tasks, i.TaskID)
		}
	}
	return tasks
}

// AnyOpen reports whether the task of an instance has not ended.
func (j *Job) AnyOpen() bool {
	return slices.ContainsFunc(j.Instances, func(i api.Instance) bool { return i.Open() })
}

// NextStart is when the next instance that has ended is started again, or a deployment gets on; zero: at no time.
func (j *Job) NextStart() (at time.Time) {
	d := j.Definition()
	if j.waits() || j.Stopped != nil || d == nil || d.Type == api.JobSysbatch {
		return at
	}
	for n := range j.Instances {
		if i := &j.Instances[n]; !i.Open() && (at.IsZero() || i.NextAt.Before(at)) {
			at = i.NextAt
		}
	}
	return earlier(at, j.nextRoll())
}

// complete reports whether the work of a sysbatch job is over: each of its instances has ended.
func (j *Job) complete() bool {
	return j.Definition().Type == api.JobSysbatch && len(j.Instances) > 0 &&
		!slices.ContainsFunc(j.Instances, func(i api.Instance) bool { return i.Open() || i.Version < j.Template })
}

// settleInstances brings the job up to date with a new version of its definition.
func (j *Job) settleInstances(before, d *api.JobDefinition, by string, revert, again bool, now time.Time) {
	if !d.HasInstances() {
		return
	}
	j.Serial = max(j.Serial, now.Unix())
	count, was := d.Instances.Total(), -1
	if before.HasInstances() && before.Type == api.JobService {
		was = before.Instances.Total()
	}
	if count != was && d.Type == api.JobService {
		j.Count = count
	}
	if !again && before.HasInstances() && uncounted(before).Equal(uncounted(d)) {
		switch {
		case before.Update == nil && d.Update != nil:
			// Nothing has watched it: it counts as healthy.
			j.Stable = api.VersionSpan{First: j.Template, Last: j.Version}
		case j.Stable.Last == j.Version-1:
			j.Stable.Last = j.Version
		}
		return
	}
	template := j.Template
	j.Template = j.Version
	j.deploy(before, d, template, by, revert, now)
}

// uncounted is the definition without what no instance notices: their number, and how they are replaced.
func uncounted(d *api.JobDefinition) *api.JobDefinition {
	c, instances := *d, *d.Instances
	instances.Count, c.Instances, c.Update = nil, &instances, nil
	return &c
}

// sameWork reports whether two definitions differ in nothing but what no instance notices.
func sameWork(d *api.JobDefinition, other *api.JobDefinition) bool {
	if d.HasInstances() && other.HasInstances() {
		return uncounted(d).Equal(uncounted(other))
	}
	return d.Equal(other)
}

// CutInstanceID returns the job and the instance in the id of an instance's task.
func CutInstanceID(id string) (job, instance string, ok bool) {
	job, rest, ok := strings.Cut(id, InstanceMark)
	end := strings.LastIndexByte(rest, '.')
	if !ok || end < 1 {
		return "", "", false
	}
	return job, rest[:end], true
}

// StatusOf is the status of an instance, by that of its task as far as that is known.
func StatusOf(i *api.Instance, task api.TaskStatus) api.StepStatus {
	switch {
	case i.Ended == api.TaskCompleted:
		return api.StepCompleted
	case !i.Open():
		return api.StepFailed
	}
	switch task {
	case api.TaskRunning:
		return api.StepRunning
	case api.TaskRetryWait:
		return api.StepRetryWait
	case api.TaskReview, api.TaskDeadLetter:
		return api.StepBlocked
	}
	return api.StepQueued
}
