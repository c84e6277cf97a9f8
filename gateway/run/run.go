// Package run answers what clients ask about runs of jobs: read, list and follow them, and decide about them and their
// steps.
package run

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

type getInput struct {
	rest.ByID
	Wait    string   `query:"wait" maxLength:"32" example:"30s" doc:"Hold the answer until the run has ended, needs a person, or this time is over. At most 60s."`
	Include []string `query:"include,explode" enum:"plan" maxItems:"1" doc:"plan: answer which steps come after which too."`
}

type stepInput struct {
	rest.ByID
	Step string `path:"step"`
	Body *api.StepRequest
}

type listInput struct {
	Job     string        `query:"job" maxLength:"127" pattern:"^([a-z0-9][a-z0-9._-]*:)?[a-z0-9][a-z0-9._-]*$" doc:"The job's name."`
	Cluster rest.Slug     `query:"cluster"`
	Tenant  rest.Slug     `query:"tenant"`
	Status  api.RunStatus `query:"status" enum:"running,pausing,paused,blocked,completed,partial,failed,cancelled"`
	rest.RecordPageInput
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Runs").Scoped()
	const refuses = " Answers 409 conflict when the run's state does not allow it."
	rest.List(r, "runs", "list-runs", "GET /runs", "List runs",
		"Newest first. A run appears within about a second of its change.", h.list)
	rest.Serve(r, "get-run", "GET /runs/{id}", "Get a run, or wait for it",
		"With its ledger: each step with its status, who ran it, and what is kept of its result.", h.get, rest.Held)
	rest.Serve(r, "pause-run", "POST /runs/{id}/pause", "Pause a run", "Nothing new begins."+refuses,
		func(ctx context.Context, in *rest.To[*api.PauseRunRequest]) (api.Run, error) {
			body := rest.Given(in.Body)
			return act(ctx, h, in.ID, contract.PauseRunUpdate, contract.PauseRunRequest{
				RunRequest: request(ctx, body.Reason), Mode: cmp.Or(body.Mode, api.PauseStop)})
		})
	rest.Serve(r, "resume-run", "POST /runs/{id}/resume", "Resume a run", refuses,
		func(ctx context.Context, in *rest.To[*api.ReasonRequest]) (api.Run, error) {
			return act(ctx, h, in.ID, contract.ResumeRunUpdate, request(ctx, in.Body.Text()))
		})
	rest.Serve(r, "cancel-run", "POST /runs/{id}/cancel", "Cancel a run", "Its tasks are told to stop."+refuses,
		func(ctx context.Context, in *rest.To[*api.ReasonRequest]) (api.Run, error) {
			return act(ctx, h, in.ID, contract.CancelRunUpdate, request(ctx, in.Body.Text()))
		})
	rest.Serve(r, "retry-run", "POST /runs/{id}/retry", "Run again what has not succeeded of a run that has ended",
		"Starts a new run, which takes over what has succeeded. Sent again, it answers that run, as a duplicate; if "+
			"that failed too, retry it. Answers 409 conflict of a run that has not ended: retry its steps.",
		h.retry, rest.Held, rest.Status(http.StatusAccepted))
	for _, a := range []struct {
		action           api.StepAction
		summary, details string
	}{
		{api.RetryStep, "Run a failed step again", "It gets a fresh set of attempts, and what comes after it waits for it."},
		{api.SkipStep, "Go on without a step", ""},
		{api.CompleteStep, "Take a step for done", "Because it was done by other means; output is what the run keeps of it."},
		{api.FailStep, "Give a step up", ""},
		{api.ApproveStep, "Approve a step that waits for it", ""},
		{api.RejectStep, "Reject a step that waits for approval", "It fails."},
	} {
		rest.Serve(r, string(a.action)+"-step", "POST /runs/{id}/steps/{step}/"+string(a.action), a.summary,
			a.details+" Answers 409 conflict when the step's state does not allow it.",
			func(ctx context.Context, in *stepInput) (api.Run, error) { return h.step(ctx, in, a.action) })
	}
}

func request(ctx context.Context, reason string) contract.RunRequest {
	return contract.RunRequest{By: rest.Actor(ctx), Reason: reason}
}

// describe is a run as Temporal itself knows it.
func (h *Handlers) describe(ctx context.Context, id string) (api.Run, error) {
	id, err := rest.OwnRun(ctx, id)
	if err != nil {
		return api.Run{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	run, _, err := h.Store.Runs().Describe(ctx, id)
	if err == nil && !rest.Sees(ctx, run.Tenant) {
		return api.Run{}, rest.Unknown(protocol.CodeUnknownRun)
	}
	return run, h.Answer(err, "describe a run", protocol.CodeUnknownRun)
}

// settled reports whether a run has ended or needs a person.
func settled(s api.RunStatus) bool { return s.Final() || s == api.RunBlocked || s == api.RunPaused }

// get is a run, with its plan if that is asked for.
func (h *Handlers) get(ctx context.Context, in *getInput) (run api.Run, err error) {
	wait, err := rest.ParseWait(in.Wait)
	if err == nil {
		run, err = h.wait(ctx, in.ID, wait)
	}
	if err == nil && len(in.Include) > 0 {
		err = h.plan(ctx, &run)
	}
	return run, err
}

// wait returns the run as soon as it is settled, or as it stands when the time is over.
func (h *Handlers) wait(ctx context.Context, id string, wait time.Duration) (run api.Run, err error) {
	named, err := rest.OwnRun(ctx, id)
	if err != nil {
		return run, err
	}
	workflowID := contract.RunWorkflowID(named)
	err = h.WaitForEnd(ctx, wait, "wait for a run", workflowID, func(ctx context.Context, last bool) (bool, error) {
		if run, err = h.describe(ctx, id); err != nil || !last && !settled(run.Status) {
			return false, err
		}
		_, err = h.complete(ctx, &run)
		(*job.Ledger)(&run.Ledger).Show(time.Now())
		return true, err
	})
	return run, err
}

// ledgerTakes is about what reading a large ledger takes, in bytes.
const ledgerTakes = 1 << 20

// complete adds the run's ledger, if it is known.
func (h *Handlers) complete(ctx context.Context, run *api.Run) (known bool, err error) {
	if err := httpapi.Reserve(ctx, ledgerTakes); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	if known, err = h.Store.Runs().Complete(ctx, run); known {
		offer(run)
	}
	return known, h.Answer(err, "read a run's end", protocol.CodeUnknownRun)
}

// offer adds what a person can do to the run now.
func offer(run *api.Run) {
	ledger := (*job.Ledger)(&run.Ledger)
	run.Actions, run.StepActions = ledger.Actions(), ledger.StepActions()
}

// plan adds which steps come after which.
func (h *Handlers) plan(ctx context.Context, run *api.Run) error {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	in, err := h.Store.Runs().Input(ctx, run)
	for i := range in.Plan.Steps {
		s := &in.Plan.Steps[i]
		run.Plan = append(run.Plan, api.PlannedStep{Step: s.ID, Level: s.Level, After: s.After, Optional: s.Optional})
	}
	return h.Answer(err, "read a run's plan", protocol.CodeUnknownRun)
}

func (h *Handlers) list(ctx context.Context, in *listInput) (page rest.Page[api.RunEntry], err error) {
	name, ok := rest.OwnID(ctx, in.Job)
	if in.Job != "" && !ok {
		return page, rest.Unknown(protocol.CodeUnknownJob)
	}
	tenant, name := api.CutTenant(name)
	if in.Job == "" {
		name = ""
	} else if tenant != "" && in.Tenant == "" {
		in.Tenant = rest.Slug(tenant)
	}
	if in.Tenant, err = rest.OwnTenant(ctx, in.Tenant); err != nil {
		return page, err
	}
	query := rest.OfType(contract.RunWorkflow, rest.Filter(contract.AttrJob, name),
		rest.Filter(contract.AttrCluster, in.Cluster), rest.Filter(contract.AttrTenant, in.Tenant),
		contract.StatusTerm(in.Status))
	return rest.PageOf(ctx, h.Core, "list runs", h.Store.Runs().Newest, query, in.RecordPageInput)
}

// act runs an update on an open run and answers the run as it stands afterwards.
func act[In any](
	ctx context.Context, h *Handlers, id string, update contract.Update[In, contract.Done], in In,
) (api.Run, error) {
	run, err := h.describe(ctx, id)
	if err != nil {
		return run, err
	}
	_, err = store.Update(ctx, h.Store, update, run.WorkflowID, in)
	if store.KindOf(err) == store.NotFound {
		return run, httpapi.Problem(protocol.CodeConflict, "the run has ended: retry it, which starts a new one")
	}
	if err := h.Answer(err, "update a run", protocol.CodeUnknownRun); err != nil {
		return run, err
	}
	if run, err = h.describe(ctx, id); err == nil {
		_, err = h.complete(ctx, &run)
		(*job.Ledger)(&run.Ledger).Show(time.Now())
	}
	return run, err
}

func (h *Handlers) step(ctx context.Context, in *stepInput, action api.StepAction) (api.Run, error) {
	body := rest.Given(in.Body)
	r := contract.StepRequest{RunRequest: request(ctx, body.Reason), Step: in.Step, Action: action,
		Output: body.Output, Attempt: body.Attempt}
	switch {
	case len(r.Output) > 0 && action != api.CompleteStep:
		return api.Run{}, rest.Invalid("body.output", errors.New("goes with complete only"))
	case r.Attempt > 0 && (action != api.CompleteStep || len(r.Output) > 0):
		return api.Run{}, rest.Invalid("body.attempt", errors.New("goes with complete only, and not with output"))
	case len(r.Output) > job.MaxOutputBytes:
		return api.Run{}, httpapi.Problem(protocol.CodePayloadTooLarge, "output is larger than 16 KiB")
	}
	return act(ctx, h, in.ID, contract.StepUpdate, r)
}

// retry starts a run that repeats one that has ended.
func (h *Handlers) retry(ctx context.Context, in *rest.To[*api.RetryRunRequest]) (api.Run, error) {
	run, err := h.describe(ctx, in.ID)
	if err != nil {
		return api.Run{}, err
	}
	if !run.Status.Final() {
		return api.Run{}, httpapi.Problem(
			protocol.CodeConflict,
			"the run has not ended: retry its failed steps (mainstay run step retry, or POST …/steps/{step}/retry), "+
				"or cancel it first",
		)
	}
	known, err := h.complete(ctx, &run)
	if err != nil {
		return api.Run{}, err
	}
	if !known {
		return api.Run{}, httpapi.Problem(protocol.CodeConflict,
			"the run has left no ledger, so it is not known what succeeded: dispatch the job again")
	}
	callCtx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	first, err := h.Store.Runs().Input(callCtx, &run)
	if err != nil {
		return api.Run{}, h.Answer(err, "read a run's plan", protocol.CodeUnknownRun)
	}
	from := rest.Given(in.Body).From
	if from != "" && !(*job.Ledger)(&run.Ledger).Reopen(&first.Plan, from) {
		return api.Run{}, rest.Invalid("body.from", errors.New("must be a step of the run"))
	}
	cluster, err := h.KnownCluster(ctx, first.Plan.Cluster)
	if err != nil {
		return api.Run{}, err
	}
	next := &contract.RunInput{Plan: first.Plan, Inputs: first.Inputs, Done: (*job.Ledger)(&run.Ledger),
		Origin: api.RunOrigin{By: rest.Actor(ctx), RetryOf: run.ID}}
	id := contract.RetryRunID(first.Plan.Job, run.ID, from)
	access.Touch(ctx, "run", id)
	err = h.Store.Runs().Start(callCtx, id, "", next, cluster.TenantWeights[run.Tenant])
	if store.KindOf(err) == store.Exists {
		repeats, err := h.wait(ctx, id, 0)
		repeats.Duplicate = true
		return repeats, err
	}
	if err != nil {
		return api.Run{}, h.Answer(err, "start a run", protocol.CodeInternal)
	}
	ledger := job.NewLedger(&next.Plan, id, next.Inputs, next.Origin, time.Now().UTC())
	ledger.TakeOver(next.Done)
	return api.Run{ID: id, Ledger: api.Ledger(*ledger), Cluster: run.Cluster, Tenant: run.Tenant,
		WorkflowID: contract.RunWorkflowID(id)}, nil
}
