// Package job is the Job workflow: a job's definition with its versions, its schedules, and which of its runs may go.
package job

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

const (
	// longHistory is the history length at which a Job continues as new.
	longHistory = 1500
	// checkEvery is how often a job looks whether the runs that others wait for have ended without a word.
	checkEvery = 2 * time.Minute
	// scheduleFor is how long a job tries to write its schedules before it says that it cannot, and scheduleAgain when
	// it tries again.
	scheduleFor, scheduleAgain = time.Minute, 10 * time.Minute
)

// Workflow lives until the job is deleted.
func Workflow(ctx workflow.Context, in contract.JobInput) (job.Job, error) {
	e := &entity{job: in.Carried}
	if e.job == nil {
		e.job = &job.Job{Name: in.Name, CreatedAt: workflow.Now(ctx).UTC()}
	}
	e.schedule = e.job.Schedules > 0 // it may have changed while the last run ended
	e.begins, e.ended = contract.RunBeginsSignal.Inbox(ctx), contract.RunEndedSignal.Inbox(ctx)
	e.openInstances(ctx)
	err := errors.Join(
		contract.JobQuery.Handle(ctx, func() job.Job { return *e.job }),
		contract.ApplyJobUpdate.Handle(ctx, e.apply, e.mayApply),
		contract.PauseJobUpdate.Handle(ctx, e.pause, func(contract.RunRequest) error {
			return cmp.Or(e.exists(), refuseIf(e.job.Paused != nil, "the job is paused already"))
		}),
		contract.ResumeJobUpdate.Handle(ctx, e.resume, func(contract.RunRequest) error {
			return cmp.Or(e.exists(),
				refuseIf(e.job.Paused == nil && e.job.Stopped == nil, "the job is not paused"))
		}),
		contract.StopJobUpdate.Handle(ctx, e.stop, e.mayStop),
		contract.ScaleJobUpdate.Handle(ctx, e.scale, e.mayScale),
		contract.PromoteJobUpdate.Handle(ctx, e.deploys(func(in contract.RunRequest, now time.Time) {
			e.job.PromoteCanaries(in.By, now)
		}), func(contract.RunRequest) error {
			return cmp.Or(e.hasInstances(), refuseIf(e.job.MayPromote() != "", e.job.MayPromote()))
		}),
		contract.FailDeploymentUpdate.Handle(ctx, e.deploys(func(in contract.RunRequest, now time.Time) {
			e.job.FailDeployment(in.By, in.Reason, now)
		}), func(contract.RunRequest) error {
			return cmp.Or(e.hasInstances(), refuseIf(e.job.MayFail() != "", e.job.MayFail()))
		}),
		contract.DeleteJobUpdate.Handle(ctx, e.remove, func(contract.RunRequest) error { return e.exists() }))
	if err != nil {
		return *e.job, err
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		for workflow.Await(ctx, func() bool { return e.schedule }) == nil {
			e.keepSchedules(ctx)
		}
	})
	return e.loop(ctx)
}

// entity is one run of a Job workflow.
type entity struct {
	job      *job.Job
	begins   contract.Inbox[contract.RunBegins]
	ended    contract.Inbox[contract.RunEnded]
	schedule bool // the schedules are not as the definition has them
	keeping  bool // they are being made so
	admit    bool // the bound may have been raised
	deleted  bool
	instances
}

func refuseIf(refused bool, why string) error {
	if refused {
		return workflows.Refuse("%s", why)
	}
	return nil
}

func (e *entity) exists() error {
	return refuseIf(e.deleted || e.job.Version == 0, "the job is being made or deleted; try again in a moment")
}

func (e *entity) mayApply(in contract.ApplyJob) error {
	if e.deleted {
		return e.exists()
	}
	if present := e.job.Definition(); present != nil && present.HasInstances() != in.Definition.HasInstances() {
		return workflows.Refuse("a job with steps cannot become one with instances, nor the other way round: " +
			"delete it first, or use another name")
	}
	if in.Expected != 0 && in.Expected != e.job.Version {
		return temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("the job is at version %d, not %d", e.job.Version, in.Expected), contract.Outdated, nil)
	}
	return nil
}

func (e *entity) apply(ctx workflow.Context, in contract.ApplyJob) (job.Job, error) {
	put := e.job.Apply
	switch {
	case in.Revert:
		put = e.job.Revert
	case e.job.DeploysAgain(&in.Definition):
		put = e.job.DeployAgain
	}
	if !put(in.Definition, in.By, workflow.Now(ctx).UTC()) {
		return e.told(), nil
	}
	e.look, e.planned, e.lookedAt = true, false, time.Time{}
	e.admit, e.schedule = true, e.schedule || e.job.Schedules > 0 || len(in.Definition.Schedules()) > 0
	return e.publishAndTell(ctx)
}

func (e *entity) pause(ctx workflow.Context, in contract.RunRequest) (job.Job, error) {
	e.job.Paused = &api.Decision{Action: "pause", By: in.By, Reason: in.Reason, At: workflow.Now(ctx).UTC()}
	e.schedule = e.job.Schedules > 0
	return e.publishAndTell(ctx)
}

func (e *entity) resume(ctx workflow.Context, _ contract.RunRequest) (job.Job, error) {
	e.job.Resume(workflow.Now(ctx).UTC())
	e.schedule, e.planned = e.job.Schedules > 0, false
	return e.publishAndTell(ctx)
}

func (e *entity) remove(ctx workflow.Context, in contract.RunRequest) (job.Job, error) {
	workflow.GetLogger(ctx).Info("The job is deleted", "job", e.job.Name, "by", in.By, "reason", in.Reason)
	e.deleted, e.schedule, e.admit, e.planned = true, true, true, false
	if e.job.Stopped == nil {
		e.job.Stopped = &api.Decision{Action: "delete", By: in.By, Reason: "the job is deleted",
			At: workflow.Now(ctx).UTC()}
	}
	return e.told(), nil
}

// told is the job as updates answer it: with the definition in force only, and without its instances. Temporal takes no
// more than 4 MiB of answers at a time, and all versions of one job may have more than a third of that.
func (e *entity) told() job.Job {
	j := *e.job
	j.Instances, j.Versions = nil, slices.Clone(j.Versions)
	for i := range len(j.Versions) - 1 {
		j.Versions[i].Definition = nil
	}
	return j
}

func (e *entity) publishAndTell(ctx workflow.Context) (job.Job, error) {
	err := e.publish(ctx)
	return e.told(), err
}

// publish shows the job in lists.
func (e *entity) publish(ctx workflow.Context) error {
	d := e.job.Definition()
	note := contract.JobNote{Type: d.Type, Version: e.job.Version, Steps: len(d.Steps),
		Schedules: len(d.Schedules()), Unscheduled: e.job.Unscheduled, Events: d.Events(), Paused: e.job.Paused != nil,
		Stopped: e.job.Stopped != nil, Count: e.job.Count}
	if r := e.job.Deployment(); r != nil {
		note.Deployment = r.Status
	}
	if d.HasInstances() && d.Instances.Service != nil {
		note.Service = d.Instances.Service.Name
	}
	attributes := []temporal.SearchAttributeUpdate{contract.AttrCluster.ValueSet(d.Cluster)}
	if len(note.Events)+len(e.job.Events) > 0 { // events find the job by these
		attributes = append(attributes, contract.TriggerTerms(note.Events))
	}
	e.job.Events = note.Events
	return errors.Join(workflow.UpsertMemo(ctx, map[string]any{contract.MemoJob: note}),
		workflow.UpsertTypedSearchAttributes(ctx, attributes...))
}

// loop answers runs, until the job is deleted or the history is long.
func (e *entity) loop(ctx workflow.Context) (job.Job, error) {
	for {
		switch {
		case ctx.Err() != nil:
			return *e.job, ctx.Err()
		case e.answerRuns(ctx):
		case e.keepInstances(ctx):
		case e.deleted && e.idle(ctx):
			return e.told(), nil
		case e.longEnough(ctx) && e.idle(ctx):
			return *e.job, workflow.NewContinueAsNewError(ctx, contract.JobWorkflow,
				contract.JobInput{Name: e.job.Name, Carried: e.job})
		default:
			e.wait(ctx)
		}
	}
}

func (e *entity) idle(ctx workflow.Context) bool {
	return !e.schedule && !e.keeping && !(e.deleted && e.job.AnyOpen()) && workflow.AllHandlersFinished(ctx)
}

// wait returns when there is something to do. While runs wait for others, it looks now and then whether these have
// ended.
func (e *entity) wait(ctx workflow.Context) {
	due := func() bool {
		return e.begins.Len() > 0 || e.ended.Len() > 0 || e.admit || e.instancesDue(workflow.Now(ctx)) ||
			(e.deleted || e.longEnough(ctx)) && e.idle(ctx)
	}
	if e.job.Definition().HasInstances() {
		e.waitForInstances(ctx, due)
		return
	}
	if !e.job.Waits() {
		_ = workflow.Await(ctx, due)
		return
	}
	if some, _ := workflow.AwaitWithOptions(ctx, workflows.Named(checkEvery, "look at the runs that others wait for"),
		due); some || ctx.Err() != nil {
		return
	}
	gone, err := contract.EndedRunsActivity.Execute(activity(ctx, time.Minute, "which runs have ended"),
		e.job.Holders()).Get(ctx)
	if err == nil && len(gone) > 0 {
		e.answer(ctx, e.job.End(gone...))
	}
}

// answerRuns takes the messages of runs. It reports whether there was anything.
func (e *entity) answerRuns(ctx workflow.Context) (any bool) {
	var verdicts []job.Verdict
	e.ended.Take(func(in contract.RunEnded) {
		any = true
		verdicts = append(verdicts, e.job.End(in.Run)...)
	})
	e.begins.Take(func(in contract.RunBegins) {
		any = true
		verdicts = append(verdicts, e.job.Begin(in.Run, in.Key)...)
	})
	if e.admit {
		any, e.admit = true, false
		bounded := *e.job
		if e.deleted {
			bounded.Versions = nil // without a definition, nothing bounds the runs
		}
		verdicts = append(verdicts, bounded.Admit()...)
	}
	e.answer(ctx, verdicts)
	return any
}

// answer sends runs their answers. A run that cannot be reached has ended, which may admit others.
func (e *entity) answer(ctx workflow.Context, verdicts []job.Verdict) {
	for len(verdicts) > 0 {
		told := make([]workflow.Future, len(verdicts))
		for i, v := range verdicts {
			told[i] = contract.RunAdmittedSignal.SendFrom(ctx, contract.RunWorkflowID(v.Run), "", v.Admission)
		}
		var gone []string
		for i, v := range verdicts {
			if told[i].Get(ctx, nil) != nil {
				gone = append(gone, v.Run)
			}
		}
		verdicts = nil
		if len(gone) > 0 && ctx.Err() == nil {
			verdicts = e.job.End(gone...)
		}
	}
}

// keepSchedules makes Temporal's schedules as the definition has them. It reports what cannot be written, and tries it
// again; a newer definition, or the deletion, takes its place at once.
func (e *entity) keepSchedules(ctx workflow.Context) {
	e.schedule, e.keeping = false, true
	defer func() { e.keeping = false }()
	in := contract.ScheduleJob{Name: e.job.Name, Version: e.job.Version, Definition: e.job.Definition(),
		Paused: e.job.Paused != nil, Had: e.job.Schedules}
	if e.deleted {
		in.Definition = nil
	}
	want := 0
	if in.Definition != nil {
		want = len(in.Definition.Schedules())
	}
	if want == 0 && in.Had == 0 {
		return
	}
	// From now on there may be as many as there were and will be.
	e.job.Schedules = max(in.Had, want)
	why := e.writeSchedules(ctx, in)
	if ctx.Err() != nil || why != "" && e.schedule {
		return
	}
	if why == "" {
		e.job.Schedules = want
	}
	if why != e.job.Unscheduled && !e.deleted {
		e.job.Unscheduled = why
		if err := e.publish(ctx); err != nil {
			workflow.GetLogger(ctx).Error("Lists do not tell how the job's schedules are", "error", err)
		}
	}
	if why == "" {
		return
	}
	e.keeping = e.deleted // a job may continue as new meanwhile, but does not end
	if _, err := workflow.AwaitWithOptions(ctx, workflows.Named(scheduleAgain, "try the job's schedules again"),
		func() bool { return e.schedule }); err == nil {
		e.schedule = true
	}
}

// writeSchedules tries to make Temporal's schedules as they are to be, until there is something newer. It returns why
// they may not be so; empty: they are.
func (e *entity) writeSchedules(ctx workflow.Context, in contract.ScheduleJob) string {
	ctx, giveUp := workflow.WithCancel(ctx)
	defer giveUp()
	options := workflow.GetActivityOptions(activity(ctx, scheduleFor, "keep the job's schedules"))
	options.WaitForCancellation = true // a try that goes on would write the older ones over the newer
	written := contract.ScheduleJobActivity.Execute(workflow.WithActivityOptions(ctx, options), in)
	_ = workflow.Await(ctx, func() bool { return written.IsReady() || e.schedule })
	if !written.IsReady() {
		giveUp()
	}
	if _, err := written.Get(ctx); err != nil {
		return workflows.ReasonOf(err)
	}
	return ""
}

func activity(ctx workflow.Context, limit time.Duration, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              contract.WorkerQueue,
		StartToCloseTimeout:    15 * time.Second,
		ScheduleToCloseTimeout: limit,
		RetryPolicy:            &temporal.RetryPolicy{MaximumInterval: time.Minute},
		Summary:                summary,
	})
}

func (e *entity) longEnough(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() > longHistory
}
