package job

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

const (
	// lookSpacing is the least time between two looks at the agents: many that join at once cost few looks.
	lookSpacing = 500 * time.Millisecond
	// lookEvery is how often a job looks without news of a change.
	lookEvery = 30 * time.Minute
	// requiredFresh is how old the look at required services may be when an instance is started.
	requiredFresh = 10 * time.Second
	// tryAgain is how long a job waits after instances could not be started or stopped.
	tryAgain = 5 * time.Second
)

// instances are what a job knows of its instances beside its state.
type instances struct {
	instanceEnds contract.Inbox[contract.InstanceEnded]
	moved        contract.Inbox[string]
	health       contract.Inbox[[]job.HealthReport]
	announced    map[int]api.DeploymentStatus // by version: what was published of deployments
	agents       *job.Agents                  // nil: not known yet
	look         bool                         // the agents may have changed
	lookAt       time.Time                    // not before then
	all          bool                         // the look is also for instances that ended without a word
	tryAt        time.Time                    // nothing is started or stopped before then
	planned      bool                         // nothing has changed since the last plan
	lookedAt     time.Time                    // the last look that succeeded
}

func (e *entity) openInstances(ctx workflow.Context) {
	e.instanceEnds, e.moved = contract.InstanceEndedSignal.Inbox(ctx), contract.AgentsMovedSignal.Inbox(ctx)
	e.health = contract.InstancesHealthSignal.Inbox(ctx)
	e.look, e.announced = true, map[int]api.DeploymentStatus{}
	for _, r := range e.job.Deployments {
		e.announced[r.Version] = r.Status
	}
}

func (e *entity) hasInstances() error {
	return cmp.Or(e.exists(), refuseIf(e.job.Version > 0 && !e.job.Definition().HasInstances(),
		"the job has steps, and no instances: cancel its runs"))
}

func (e *entity) mayStop(contract.RunRequest) error {
	return cmp.Or(e.hasInstances(), refuseIf(e.job.Stopped != nil, "the job is stopped already"))
}

func (e *entity) stop(ctx workflow.Context, in contract.RunRequest) (job.Job, error) {
	e.job.Stopped = &api.Decision{Action: "stop", By: in.By, Reason: in.Reason, At: workflow.Now(ctx).UTC()}
	e.planned = false
	return e.publishAndTell(ctx)
}

// deploys is the answer to a person's decision about a deployment.
func (e *entity) deploys(decide func(in contract.RunRequest, now time.Time)) func(
	workflow.Context, contract.RunRequest) (job.Job, error) {
	return func(ctx workflow.Context, in contract.RunRequest) (job.Job, error) {
		decide(in, workflow.Now(ctx).UTC())
		e.look, e.planned = true, false
		return e.publishAndTell(ctx)
	}
}

func (e *entity) mayScale(contract.ScaleJob) error {
	d := e.job.Definition()
	return cmp.Or(e.hasInstances(), refuseIf(d != nil && d.Type != api.JobService,
		"the job has one instance on each of its agents: only a service is scaled"))
}

func (e *entity) scale(ctx workflow.Context, in contract.ScaleJob) (job.Job, error) {
	e.job.Count, e.planned = in.Count, false
	return e.publishAndTell(ctx)
}

// keepInstances applies the news, and starts and stops instances. It reports whether there was anything.
func (e *entity) keepInstances(ctx workflow.Context) (any bool) {
	d, now := e.job.Definition(), workflow.Now(ctx)
	e.instanceEnds.Take(func(in contract.InstanceEnded) {
		any = true
		e.job.EndInstance(in.Task, in.Status, in.Why, now)
		e.job.Hold(in.Task, in.GoesOnUntil)
	})
	e.moved.Take(func(string) { e.look = true })
	e.health.Take(func(reports []job.HealthReport) {
		any = true
		for _, r := range reports {
			if e.job.TakeHealth(r, now.UTC()) {
				e.planned = false
			}
		}
	})
	if !d.HasInstances() {
		return any
	}
	if e.lookDue(now) {
		any = true
		e.lookAtInstances(ctx)
		now = workflow.Now(ctx)
	}
	if now.Before(e.tryAt) || !any && e.planned && !e.startDue(now) {
		return any
	}
	e.planned = true
	version := e.job.Version
	e.require(now)
	change := e.job.Plan(e.agents, now.UTC())
	e.look = e.look || e.job.Version != version // the version before may be for other agents
	e.announce(ctx)
	if len(change.Start)+len(change.Stop) == 0 {
		return any
	}
	if len(change.Start) > 0 && len(d.Required()) > 0 && now.Sub(e.lookedAt) > requiredFresh {
		e.look, e.lookAt, e.planned = true, now, false
		return true // the look says whether they may be started
	}
	gone, err := contract.ChangeInstancesActivity.Execute(activity(ctx, time.Minute, "start and stop instances"),
		contract.ChangeInstances{Job: e.job.Name, Definition: e.job.Definition(), Others: e.others(change.Start),
			Change: change}).Get(ctx)
	e.planned = false
	if err != nil {
		workflow.GetLogger(ctx).Warn("Instances were not started or stopped; it is tried again", "error", err)
		e.tryAt = workflow.Now(ctx).Add(tryAgain)
		return true
	}
	e.job.Done(change, gone, workflow.Now(ctx).UTC())
	return true
}

// require takes required services for missing until the job has looked for them.
func (e *entity) require(now time.Time) {
	required := e.job.Definition().Required()
	switch {
	case len(required) == 0:
		e.job.Require(nil, now.UTC())
	case e.lookedAt.IsZero():
		e.job.Require(required, now.UTC())
	}
}

// others are the earlier versions that instances are started with.
func (e *entity) others(start []api.Instance) (versions []api.JobVersion) {
	for _, v := range e.job.Versions {
		if v.Version != e.job.Version && slices.ContainsFunc(start, func(i api.Instance) bool {
			return i.Version == v.Version
		}) {
			versions = append(versions, v)
		}
	}
	return versions
}

// announce publishes the changes of deployments since the last time.
func (e *entity) announce(ctx workflow.Context) {
	var events []cluster.Event
	d := e.job.Definition()
	for n := range e.job.Deployments {
		r := &e.job.Deployments[n]
		if e.announced[r.Version] == r.Status {
			continue
		}
		e.announced[r.Version] = r.Status
		events = append(events, cluster.Event{Type: api.EventDeployment, Time: workflow.Now(ctx).UTC(),
			EventData: api.EventData{Cluster: d.Cluster, Tenant: d.Tenant, ID: e.job.Name, Outcome: string(r.Status),
				Reason: strings.TrimSuffix("version "+strconv.Itoa(r.Version)+": "+r.Reason, ": ")}})
	}
	if len(events) == 0 {
		return
	}
	contract.AnnounceSignal.SendFrom(ctx, contract.ClusterWorkflowID(d.Cluster), "",
		contract.Announcement{Events: events})
	if err := e.publish(ctx); err != nil {
		workflow.GetLogger(ctx).Warn("Lists do not tell of the job's deployment", "error", err)
	}
}

func (e *entity) lookDue(now time.Time) bool {
	d := e.job.Definition()
	return e.look && !now.Before(e.lookAt) && (e.all || d.OnEachAgent() || len(d.Required()) > 0)
}

func (e *entity) startDue(now time.Time) bool {
	next := e.job.NextStart()
	return !next.IsZero() && !now.Before(next) && (e.agents != nil || !e.job.Definition().OnEachAgent())
}

// lookAtInstances reads which agents there are. Now and then it looks for instances that ended without a word.
func (e *entity) lookAtInstances(ctx workflow.Context) {
	in := contract.LookAtInstances{Job: e.job.Name, Definition: e.job.Definition()}
	if e.all {
		in.Tasks = e.job.OpenTasks()
	}
	e.look, e.all = false, false
	seen, err := contract.LookAtInstancesActivity.Execute(activity(ctx, time.Minute, "which agents there are"), in).
		Get(ctx)
	now := workflow.Now(ctx)
	e.lookAt = now.Add(lookSpacing)
	if err != nil {
		workflow.GetLogger(ctx).Warn("The agents of the job's cluster are not known; it looks again", "error", err)
		e.look, e.lookAt = true, now.Add(tryAgain)
		return
	}
	e.agents, e.lookedAt = &seen.Agents, now
	e.job.Require(seen.Missing, now.UTC())
	e.planned = e.planned && len(in.Definition.Required()) == 0
	if len(seen.Missing) > 0 {
		e.look, e.lookAt = true, now.Add(job.LookAgain(in.Definition.Requires, now.Sub(e.job.MissingSince)))
	}
	for _, task := range seen.Ended {
		e.job.EndInstance(task, "", "its task ended without a word", now)
	}
}

// instancesDue reports whether keepInstances has something to do.
func (e *entity) instancesDue(now time.Time) bool {
	return e.instanceEnds.Len() > 0 || e.moved.Len() > 0 || e.health.Len() > 0 || e.job.Definition().HasInstances() &&
		(e.lookDue(now) || !now.Before(e.tryAt) && (!e.planned || e.startDue(now)))
}

// waitForInstances returns when something is due, at the latest when a look without news is.
func (e *entity) waitForInstances(ctx workflow.Context, due func() bool) {
	now := workflow.Now(ctx)
	wait, why := lookEvery, "look after the instances"
	next := []time.Time{e.tryAt, e.job.NextStart()}
	if e.look {
		next = append(next, e.lookAt)
	}
	for _, at := range next {
		if at.After(now) && at.Sub(now) < wait {
			wait, why = at.Sub(now), "until an instance is started, or the agents are looked at"
		}
	}
	if some, err := workflow.AwaitWithOptions(ctx, workflows.Named(wait, why), due); err == nil && !some &&
		wait == lookEvery {
		e.look, e.all = true, true
	}
}
