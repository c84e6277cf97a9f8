package run

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/sdk/api"
)

// evaluate evaluates, in one local activity, the outputs of the steps that have ended, and the inputs of steps that
// begin. Then it begins these.
func (r *run) evaluate(ctx workflow.Context, begin []string) {
	in := contract.EvaluateInput{Run: r.id, Plan: &r.in.Plan, Inputs: r.in.Inputs, Begin: begin,
		Steps: r.ledger.Clone().Steps} // the SDK hands the input over as it is, and the activity changes it
	for _, step := range r.ended {
		in.Ended = append(in.Ended, r.endedStep(step))
	}
	answer, err := r.plain(ctx, in), error(nil)
	if answer == nil {
		if answer, err = evaluation(ctx, in); answer.Defaults != nil {
			r.defaults, r.types = answer.Defaults, answer.Types
			r.defaultsUntil = workflow.Now(ctx).Add(defaultsKept)
		}
		r.turn += answer.Bytes()
	}
	if r.notTheTurn(ctx, err) {
		return
	}
	if err != nil {
		r.ledger.Why = "its expressions cannot be evaluated yet: " + workflows.ReasonOf(err)
		_ = workflow.Sleep(ctx, time.Second)
		return
	}
	for _, o := range answer.Outputs {
		r.takeOutput(ctx, o)
	}
	r.ended = r.ended[len(answer.Outputs):]
	for i := range answer.Begin {
		if r.ledger.Entry(answer.Begin[i].Step).Status.Final() {
			continue // a person decided, meanwhile
		}
		r.beginStep(ctx, &answer.Begin[i])
	}
}

// plain is the answer where there is nothing to evaluate, so that the history needs no marker for it: the steps that
// have ended declare no output and complete nothing, and those that begin are plain.
func (r *run) plain(ctx workflow.Context, in contract.EvaluateInput) *contract.Evaluated {
	answer := &contract.Evaluated{}
	for _, e := range in.Ended {
		if s := r.in.Plan.Step(e.Step); len(s.Output)+len(s.Tools) > 0 || s.Check != nil || job.MayComplete(e.Result) ||
			slices.ContainsFunc(e.Results, job.MayComplete) {
			return nil
		}
		output := job.WholeOutput(e.Result)
		answer.Outputs = append(answer.Outputs, contract.StepOutput{Step: e.Step, Output: output})
		i := slices.IndexFunc(in.Steps, func(entry api.StepEntry) bool { return entry.Step == e.Step })
		in.Steps[i].Output = output // what begins sees it
	}
	budget := plainFilled
	for _, id := range in.Begin {
		begun, ok := r.plainStep(ctx, r.in.Plan.Step(id), in.Steps, &budget)
		if !ok {
			return nil
		}
		answer.Begin = append(answer.Begin, begun)
	}
	return answer
}

// plainStep is the beginning of a plain step. ok is false if an evaluation is needed, also for a task whose lane has to
// be found or opened.
func (r *run) plainStep(
	ctx workflow.Context, s *job.PlannedStep, steps []api.StepEntry, budget *int,
) (begun contract.BegunStep, ok bool) {
	begun.Step = s.ID
	switch {
	case !s.Plain:
		return begun, false
	case s.Approve != nil:
		begun.Message = s.Approve.Message
	case s.Task != nil:
		spec := s.Task
		if s.Dynamic {
			if spec, ok = job.Fill(s.Task, r.in.Inputs, steps, budget); !ok {
				return begun, false
			}
		}
		place := contract.TaskPlace{Lane: contract.Lane(spec, 0, r.types.Apart(spec.Type))}
		if place.Opens() || r.defaults == nil || !workflow.Now(ctx).Before(r.defaultsUntil) {
			return begun, false
		}
		place.Defaults = *r.defaults
		task := place.Input("", *spec)
		begun.Tasks = []contract.PlacedTask{{Spec: task.Spec, Lane: task.Lane}}
	}
	return begun, true
}

// plainFilled bounds, in bytes, what is filled in without an evaluation for steps that begin at once: this code runs in
// the workflow, which may take a second for all that it does at once.
const plainFilled = 512 << 10

func evaluation(ctx workflow.Context, in contract.EvaluateInput) (*contract.Evaluated, error) {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: evaluateTimeout,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:        200 * time.Millisecond,
			MaximumInterval:        5 * time.Second,
			NonRetryableErrorTypes: []string{contract.NotTheirTurn},
		},
		Summary: "evaluate expressions",
	})
	answer, err := contract.EvaluateActivity.ExecuteLocal(ctx, in).Get(ctx)
	return &answer, err
}

// concurrencyKey is the value by which the job counts the run.
func (r *run) concurrencyKey(ctx workflow.Context) (string, error) {
	expression := r.in.Plan.Concurrency.Key
	if expression == "" {
		return "", nil
	}
	for {
		answer, err := evaluation(ctx, contract.EvaluateInput{Run: r.id, Plan: &r.in.Plan, Inputs: r.in.Inputs,
			Key: expression})
		switch {
		case !r.notTheTurn(ctx, err):
			return answer.Key, err
		case r.ledger.Cancel != nil || ctx.Err() != nil:
			return "", nil //nolint:nilerr // it begins nothing any more
		}
	}
}

// notTheTurn reports whether an evaluation waits for others of its tenant, after a wait that grows each time.
func (r *run) notTheTurn(ctx workflow.Context, err error) bool {
	if !workflows.IsType(err, contract.NotTheirTurn) {
		r.turnless = 0
		return false
	}
	r.turnless++
	cancelled := r.ledger.Cancel != nil // then the outputs of what has ended still wait
	r.ledger.Why = "its expressions cannot be evaluated yet: " + workflows.ReasonOf(err)
	_, _ = workflow.AwaitWithOptions(ctx, workflows.Named(task.TurnWait(r.id, r.turnless), "until it is its turn"),
		func() bool { return !cancelled && r.ledger.Cancel != nil })
	return true
}

func (r *run) endedStep(step string) contract.EndedStep {
	e := r.ledger.Entry(step)
	if e.Array != "" {
		return contract.EndedStep{Step: step, Array: e.Array}
	}
	if e.Counts == nil {
		ended := contract.EndedStep{Step: step, Result: r.results[step]}
		if e.Verdict != nil && e.Verdict.Status == api.StepCompleted {
			ended.Verdict = r.results[job.CheckKey(step)]
		} else if e.Verdict != nil && e.Verdict.Status == api.StepFailed {
			ended.NoVerdict = e.Verdict.Why
		}
		return ended
	}
	ended := contract.EndedStep{Step: step, Results: []json.RawMessage{}}
	for n := range e.Elements {
		if result, done := r.results[job.ElementKey(step, n)]; done {
			ended.Results = append(ended.Results, result)
		}
	}
	return ended
}

// takeOutput keeps the output of a step that has ended.
func (r *run) takeOutput(ctx workflow.Context, o contract.StepOutput) {
	e, s, now := r.ledger.Entry(o.Step), r.in.Plan.Step(o.Step), workflow.Now(ctx)
	if o.Check != nil {
		r.check(ctx, e, o.Check)
		return
	}
	result := r.results[o.Step]
	delete(r.results, o.Step)
	delete(r.results, job.CheckKey(o.Step))
	if len(o.Calls) > 0 {
		r.call(ctx, s, o.Calls, result)
		return
	}
	for n := range e.Elements {
		delete(r.results, job.ElementKey(o.Step, n))
	}
	if len(o.Wrong) > 0 {
		r.correct(ctx, s, &o, result)
		return
	}
	problem := o.Error
	if problem == "" && r.ledger.OutputBytes()+len(o.Output) > job.MaxOutputsBytes {
		problem = "the outputs of the run have more than 1 MiB: keep less of its results, with output"
	}
	if problem != "" {
		job.FailEntry(e, s.OnFailure, problem, now)
		return
	}
	e.Output = o.Output
	delete(r.talks, o.Step)
	if o.Completes != nil {
		r.ledger.Output = o.Completes
	}
}

// correct has a step whose check did not accept its result run again, or wait for a person. Both are events.
func (r *run) correct(
	ctx workflow.Context, s *job.PlannedStep, o *contract.StepOutput, result json.RawMessage,
) {
	if len(s.Tools) > 0 && !o.NoVerdict &&
		!r.say(s.ID, mesh.MessageOf(mesh.ReadAnswer(result)), mesh.NotAccepted(o.Wrong)) {
		job.FailEntry(r.ledger.Entry(s.ID), s.OnFailure, talkFull, workflow.Now(ctx))
		return
	}
	escalated, e := r.ledger.Correct(s, o.Wrong, o.NoVerdict, result, workflow.Now(ctx)), r.ledger.Entry(s.ID)
	what, why := api.EventStepEscalated, e.Why
	if !escalated {
		if e.Status != api.StepPending {
			return
		}
		what, why = api.EventStepCorrected, strings.Join(o.Wrong, "; ")
	}
	contract.AnnounceSignal.SendFrom(ctx, contract.ClusterWorkflowID(r.in.Plan.Cluster), "",
		contract.Announcement{Events: []cluster.Event{{Type: what, Time: workflow.Now(ctx).UTC(),
			EventData: api.EventData{Cluster: r.in.Plan.Cluster, Tenant: r.in.Plan.Tenant, ID: r.id, TaskID: e.TaskID,
				Count: len(e.Corrections), Reason: api.Shorten(why, maxWhy)}}}})
}

// beginStep begins a step with what its expressions gave.
func (r *run) beginStep(ctx workflow.Context, b *contract.BegunStep) {
	e, s, now := r.ledger.Entry(b.Step), r.in.Plan.Step(b.Step), workflow.Now(ctx)
	e.Begun = true
	if corrected := len(e.Corrections)+e.Turns > 0 && e.DeadlineAt != nil; s.Deadline > 0 && !corrected {
		at := now.Add(s.Deadline.Std())
		e.DeadlineAt = &at
	}
	r.takeTurn(b)
	switch {
	case b.Error != "":
		job.FailEntry(e, s.OnFailure, b.Error, now)
	case b.Skip:
		job.EndWork(&e.StepWork, api.StepSkipped, "its condition is false", now)
	case s.Approve != nil:
		e.Status, e.Why, e.Approval, e.StartedAt = api.StepBlocked, b.Message, true, &now
	case s.Wait != nil:
		e.NextAt, e.StartedAt = b.Until, &now
		if s.Wait.For > 0 {
			at := now.Add(s.Wait.For.Std())
			e.NextAt = &at
		}
	case b.Array != nil:
		e.Status, e.StartedAt = api.StepQueued, &now
		r.beginArray(ctx, e, b.Array)
	default:
		e.Status, e.StartedAt = api.StepQueued, &now
		r.make(e, b.Tasks, s.ForEach != nil)
		if len(b.Tasks) == 0 { // for_each of nothing
			job.EndWork(&e.StepWork, api.StepCompleted, "there are no elements", now)
			r.ended = append(r.ended, e.Step)
		}
	}
	r.timer(ctx, e)
}
