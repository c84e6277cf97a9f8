// Package job answers what clients ask about jobs: apply, read, list, plan, dispatch, pause and delete them.
package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/limit"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct {
	*rest.Core
	// Explain says why tasks wait.
	Explain func(context.Context, []store.Task)
	// RoomForSchedules refuses the schedules of a job where there are too many, or where they start too much.
	RoomForSchedules func(ctx context.Context, name string, schedules []*api.ScheduleTrigger) error

	checking limit.AtOnce // checks one definition of each tenant at a time: one takes up to seconds
}

type getInput struct {
	rest.ByName
	Version int `query:"version" minimum:"1" doc:"Show the definition of this version, if it is kept. Left out: the one in force."`
}

type definitionInput struct {
	rest.ByName
	IfMatch string `header:"If-Match" maxLength:"64" doc:"The ETag of the version that the definition was made from. When another is in force, the answer is 412 precondition_failed, and nothing happens."`
	RawBody []byte `contentType:"application/yaml"`
}

type listInput struct {
	Cluster  rest.Slug `query:"cluster"`
	Tenant   rest.Slug `query:"tenant"`
	Troubled bool      `query:"troubled" doc:"Only services and system jobs that lack healthy instances, or whose deployment has failed, each with its trouble. A page may have fewer than page_size, or none, although more follow."`
	rest.RecordPageInput
}

type jobOutput struct {
	Status int
	ETag   string `header:"ETag"`
	Body   api.Job
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	const documents = " The body is the definition, YAML or JSON with the same names; it may leave job out, which " +
		"the path names."
	r := rest.On(routes, "Jobs").Scoped()
	rest.Respond(r, "apply-job", "PUT /jobs/{name}", "Apply a job's definition",
		"Makes the job, or a new version of it; a definition that equals the one in force makes none. Answers 409 "+
			"conflict when there are as many jobs as there may be, 1000 of a tenant and 10,000 of all, and when its "+
			"schedules are too many or start too much, as of POST /schedules. Runs that go on keep the version that "+
			"they began with."+documents,
		h.applyRequest, rest.Held, rest.Also(http.StatusCreated, "The job is new"))
	rest.Serve(r, "plan-job", "POST /jobs/{name}/plan", "Say what a definition would change",
		"Nothing happens. Any wrong definition is refused as when it is applied."+documents, h.plan, rest.Held)
	rest.List(r, "jobs", "list-jobs", "GET /jobs", "List jobs", "A job appears within about a second of its change.",
		h.list)
	rest.Respond(r, "get-job", "GET /jobs/{name}", "Get a job", "", h.get)
	rest.List(r, "versions", "list-job-versions", "GET /jobs/{name}/versions",
		"List the versions of a job's definition",
		"The newest six, or fewer if they are large, without their definitions: get a job with a version has one. "+
			"The one in force is the last.",
		func(ctx context.Context, in *rest.ByName) (rest.Page[api.JobVersion], error) {
			_, j, err := h.find(ctx, in.Name)
			return rest.Page[api.JobVersion]{Items: withoutDefinitions(j.Versions)}, err
		})
	rest.Serve(r, "list-job-instances", "GET /jobs/{name}/instances", "List the instances of a job",
		"Of a service, system or sysbatch job.", h.instances, rest.Wide, rest.Held)
	rest.Serve(r, "dispatch-job", "POST /jobs/{name}/dispatch", "Start a run of a job",
		"Answers 202 once the run is durable. A key that was sent before answers its run, with \"duplicate\": true.",
		func(ctx context.Context, in *rest.ToNamed[api.DispatchRequest]) (api.Run, error) {
			return h.dispatch(ctx, in.Name, &in.Body)
		}, rest.Held, rest.Status(http.StatusAccepted))
	for _, a := range []struct {
		word, id, summary, details string
		update                     contract.Update[contract.RunRequest, job.Job]
	}{
		{"pause", "pause-job", "Pause a job",
			"Its schedules start nothing, and dispatches are refused. Runs go on. No instance is started.",
			contract.PauseJobUpdate},
		{"resume", "resume-job", "Resume a job", "One that was paused, or stopped.", contract.ResumeJobUpdate},
		{"stop", "stop-job", "Stop the instances of a job", "They start again when the job is resumed.",
			contract.StopJobUpdate},
		{"promote", "promote-job", "Let all instances follow the healthy canaries",
			"Only while the deployment of the job is waiting.", contract.PromoteJobUpdate},
		{"fail", "fail-job-deployment", "End the deployment of a job as failed",
			"Old instances stay; with revert, the version before is put in force again.", contract.FailDeploymentUpdate},
	} {
		rest.Respond(r, a.id, "POST /jobs/{name}/"+a.word, a.summary, a.details,
			func(ctx context.Context, in *rest.ToNamed[*api.ReasonRequest]) (*jobOutput, error) {
				return change(ctx, h, in.Name, a.update,
					contract.RunRequest{By: rest.Actor(ctx), Reason: in.Body.Text()})
			})
	}
	rest.Respond(r, "scale-job", "POST /jobs/{name}/scale", "Say how many instances a service has",
		"The definition keeps its count; one with another count changes it again.",
		func(ctx context.Context, in *rest.ToNamed[api.ScaleJobRequest]) (*jobOutput, error) {
			return change(ctx, h, in.Name, contract.ScaleJobUpdate, contract.ScaleJob{Count: in.Body.Count,
				RunRequest: contract.RunRequest{By: rest.Actor(ctx)}})
		})
	rest.Respond(r, "revert-job", "POST /jobs/{name}/revert", "Put an earlier version in force again",
		"It becomes a new version. Instances that still have it stay. Answers 409 conflict when its definition is "+
			"in force already.",
		h.revert, rest.Held)
	rest.Serve(r, "restart-job-instance", "POST /jobs/{name}/instances/{instance}/restart", "Restart an instance",
		"Its task is stopped; another takes its place at once. The other instances go on.", h.restart)
	rest.Serve(r, "delete-job", "DELETE /jobs/{name}", "Delete a job",
		"With its versions and schedules. Runs go on; instances are stopped.",
		func(ctx context.Context, in *rest.ByName) (rest.None, error) {
			_, err := change(ctx, h, in.Name, contract.DeleteJobUpdate, contract.RunRequest{By: rest.Actor(ctx)})
			return rest.None{}, err
		})
}

func (h *Handlers) get(ctx context.Context, in *getInput) (*jobOutput, error) {
	name, j, err := h.find(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	out, err := h.answer(ctx, name, &j, in.Version)
	if v, _ := j.RevertsTo(); v != nil && err == nil {
		out.Body.RevertsTo = v.Version
	}
	return out, err
}

// find asks for a job, and answers its full name too.
func (h *Handlers) find(ctx context.Context, name string) (string, job.Job, error) {
	name, err := rest.OwnJob(ctx, name)
	if err != nil {
		return name, job.Job{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.QueryTimeout)
	defer cancel()
	j, err := h.Store.Jobs().Get(ctx, name)
	return name, j, h.Answer(err, "query a job", protocol.CodeUnknownJob)
}

var errNotKept = fmt.Errorf("is not kept: only the newest %d versions are, or fewer if they are "+
	"large", job.VersionsKept)

// shownTimes is how many next times of its schedules an answer has.
const shownTimes = 5

// answer is a job as clients see it. Only the version that is shown has its definition.
func (h *Handlers) answer(ctx context.Context, name string, j *job.Job, version int) (*jobOutput, error) {
	shown := j.Find(j.Version)
	if version > 0 {
		shown = j.Find(version)
	}
	if shown == nil {
		return nil, rest.Invalid("query.version", errNotKept)
	}
	d := shown.Definition
	out := &jobOutput{Status: http.StatusOK, ETag: `"` + strconv.Itoa(j.Version) + `"`,
		Body: api.Job{JobState: api.JobState(*j), Type: cmp.Or(d.Type, api.JobBatch), Cluster: d.Cluster,
			Definition: d}}
	out.Body.Tenant, _ = api.CutTenant(name)
	out.Body.Instances = nil // they have a route of their own
	out.Body.Versions = withoutDefinitions(j.Versions)
	if j.Paused == nil {
		out.Body.NextTimes = job.NextTimes(j.Definition(), time.Now(), shownTimes)
	}
	return out, nil
}

// withoutDefinitions keeps answers small: a definition may have 256 KiB.
func withoutDefinitions(versions []api.JobVersion) []api.JobVersion {
	versions = slices.Clone(versions)
	for i := range versions {
		versions[i].Definition = nil
	}
	return versions
}

// turn waits until no other definition of the tenant is checked; done ends the check.
func (h *Handlers) turn(ctx context.Context) (done func(), err error) {
	return h.checking.Acquire(ctx, access.From(ctx).Tenant, 1)
}

// read reads a definition, and answers the full name of its job.
func (h *Handlers) read(ctx context.Context, in *definitionInput) (string, *api.JobDefinition, *job.Plan, error) {
	name, ok := rest.OwnID(ctx, in.Name)
	if !ok {
		return "", nil, nil, rest.Unknown(protocol.CodeUnknownJob)
	}
	done, err := h.turn(ctx)
	if err != nil {
		return "", nil, nil, err
	}
	defer done()
	tenant, plain := api.CutTenant(name)
	d, _, err := flow.ReadOf(plain, in.RawBody)
	if err != nil {
		return "", nil, nil, definitionProblem(err, in.RawBody)
	}
	if d.Job != plain {
		return "", nil, nil, rest.Invalid("body.job", errors.New("must be the name in the path, or be left out"))
	}
	tenant = cmp.Or(tenant, d.Tenant)
	d.Tenant = cmp.Or(d.Tenant, tenant)
	if d.Tenant, err = rest.OwnTenant(ctx, d.Tenant); err != nil {
		return "", nil, nil, err
	}
	if d.Tenant != tenant {
		return "", nil, nil, rest.Invalid(
			"body.tenant",
			errors.New("must be the tenant before the job's name, or be left out"),
		)
	}
	name = api.Qualify(tenant, plain)
	if !api.IsScheduleName(name) {
		return "", nil, nil, rest.Invalid(
			"path.name",
			errors.New("must be a tenant's name, a colon, and the name of a job"),
		)
	}
	plan, err := flow.PlanOf(name, 0, d)
	if err != nil {
		return "", nil, nil, rest.Invalid(
			"body",
			fmt.Errorf("is larger than %d KiB as JSON, where each <, > and & takes six bytes", job.MaxDefinition>>10),
		)
	}
	return name, d, plan, nil
}

// definitionProblem lists everything wrong with a definition, each error with its field, and with its line in YAML.
func definitionProblem(err error, body []byte) error {
	var wrong *document.Error
	if !errors.As(err, &wrong) {
		return rest.Invalid("body", err)
	}
	isJSON := strings.HasPrefix(strings.TrimSpace(string(body)), "{")
	fields := make([]api.ProblemField, 0, len(wrong.Problems))
	for _, p := range wrong.Problems[:min(len(wrong.Problems), maxProblems)] {
		field := api.ProblemField{Location: "body", Message: p.What}
		if p.Field != "" {
			field.Location += "." + p.Field
		}
		if p.Line > 0 && !isJSON {
			field.Message = fmt.Sprintf("line %d: %s", p.Line, p.What)
		}
		fields = append(fields, field)
	}
	return httpapi.Problem(protocol.CodeInvalidRequest, "the definition cannot be used; errors says where", fields...)
}

// maxProblems bounds the errors that an answer lists.
const maxProblems = 50

func (h *Handlers) applyRequest(ctx context.Context, in *definitionInput) (*jobOutput, error) {
	expected := 0
	if tag := strings.TrimSuffix(strings.Trim(strings.TrimSpace(in.IfMatch), `"`), httpapi.CompressedTag); tag != "" &&
		tag != "*" {
		var err error
		if expected, err = strconv.Atoi(tag); err != nil || expected < 1 {
			return nil, rest.Invalid(
				"header.If-Match",
				errors.New("must be the ETag of the job as it was answered, or *"),
			)
		}
	}
	name, d, _, err := h.read(ctx, in)
	if err != nil {
		return nil, err
	}
	return h.apply(ctx, name, contract.ApplyJob{Definition: *d, Expected: expected})
}

func (h *Handlers) apply(ctx context.Context, name string, in contract.ApplyJob) (*jobOutput, error) {
	d := &in.Definition
	access.Touch(ctx, "job", name)
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	if _, err := h.KnownCluster(ctx, d.Cluster); err != nil {
		return nil, err
	}
	if err := h.RoomForSchedules(ctx, name, d.Schedules()); err != nil {
		return nil, err
	}
	in.By = rest.Actor(ctx)
	j, err := h.Store.Jobs().Apply(ctx, name, in, func(tenant string) error {
		return h.Room(ctx, tenant, "jobs", func(ctx context.Context, query string) (int64, error) {
			return h.Store.Count(ctx, rest.AllOf(store.JobsQuery, query))
		})
	})
	if store.KindOf(err) == store.Outdated {
		return nil, httpapi.Problem(
			protocol.CodePrecondition,
			"another version of the job is in force than the one that If-Match names: get the job, look again, and "+
				"send its ETag",
		)
	}
	if err != nil {
		return nil, h.Answer(err, "apply a job", protocol.CodeUnknownJob)
	}
	h.awaitTriggers(ctx, name, d)
	out, err := h.answer(ctx, name, &j, 0)
	if err == nil && j.Version == 1 && len(j.Versions) == 1 {
		out.Status = http.StatusCreated
	}
	return out, err
}

// triggersSeen is how long a trigger is in lists until all workers know it: they look for triggers once a second.
const triggersSeen = time.Second

// awaitTriggers waits until the next event finds the job, or some seconds.
func (h *Handlers) awaitTriggers(ctx context.Context, name string, d *api.JobDefinition) {
	tenant, plain := api.CutTenant(name)
	for _, kind := range d.Events() {
		query := contract.JobsOn(tenant, kind) + " AND " + contract.Equals(contract.AttrJob.GetName(), plain)
		_ = h.WaitUntil(ctx, rest.QueryTimeout, "look for a job", func(ctx context.Context, _ bool) (bool, error) {
			n, err := h.Store.Count(ctx, query)
			return n > 0, err
		})
	}
	if len(d.Events()) > 0 {
		_ = h.WaitUntil(ctx, triggersSeen, "wait for a job", func(_ context.Context, last bool) (bool, error) {
			return last, nil
		})
	}
}

func (h *Handlers) plan(ctx context.Context, in *definitionInput) (api.JobPlan, error) {
	name, d, plan, err := h.read(ctx, in)
	if err != nil {
		return api.JobPlan{}, err
	}
	answer := api.JobPlan{Job: name, Changed: true, Changes: []string{}, Levels: append([][]string{}, plan.Levels()...),
		Warnings: append([]string{}, flow.Warnings(d, plan)...)}
	_, j, err := h.find(ctx, name)
	if code, _ := rest.Code(err); code == protocol.CodeUnknownJob {
		return answer, nil
	}
	if err == nil {
		answer.Version = j.Version
		answer.Changes = job.Changes(j.Definition(), d)
		answer.Changed = len(answer.Changes) > 0
	}
	return answer, err
}

func (h *Handlers) list(ctx context.Context, in *listInput) (page rest.Page[api.JobEntry], err error) {
	if in.Tenant, err = rest.OwnTenant(ctx, in.Tenant); err != nil {
		return page, err
	}
	query := rest.AllOf(store.JobsQuery, rest.Filter(contract.AttrCluster, in.Cluster),
		rest.Filter(contract.AttrTenant, in.Tenant))
	page, err = rest.PageOf(ctx, h.Core, "list jobs", h.Store.Jobs().Page, query, in.RecordPageInput)
	if err == nil && in.Troubled {
		page.Items = h.troubled(ctx, page.Items)
	}
	return page, err
}

// troubled are the jobs whose instances are not as they should be. Jobs that do not answer are left out.
func (h *Handlers) troubled(ctx context.Context, jobs []api.JobEntry) []api.JobEntry {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	now := time.Now()
	parallel.Each(len(jobs), rest.FanOut, func(n int) {
		if e := &jobs[n]; e.Type != api.JobBatch && e.Type != api.JobSysbatch && !e.Stopped {
			if j, err := h.Store.Jobs().Get(ctx, e.Name); err == nil {
				e.Trouble = j.Trouble(now)
			}
		}
	})
	return slices.DeleteFunc(jobs, func(e api.JobEntry) bool { return e.Trouble == nil })
}

// change runs an update of a job.
func change[In any](
	ctx context.Context, h *Handlers, name string, update contract.Update[In, job.Job], in In,
) (*jobOutput, error) {
	name, err := rest.OwnJob(ctx, name)
	if err != nil {
		return nil, err
	}
	j, err := store.Update(ctx, h.Store, update, contract.JobWorkflowID(name), in)
	if err != nil {
		return nil, h.Answer(err, "change a job", protocol.CodeUnknownJob)
	}
	return h.answer(ctx, name, &j, 0)
}

func (h *Handlers) revert(ctx context.Context, in *rest.ToNamed[api.RevertRequest]) (*jobOutput, error) {
	name, j, err := h.find(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	v, why := j.Find(in.Body.Version), ""
	switch {
	case in.Body.Version == 0:
		if v, why = j.RevertsTo(); v == nil {
			return nil, rest.Invalid("body.version", errors.New("is missing: "+why))
		}
	case v == nil:
		return nil, rest.Invalid("body.version", errNotKept)
	case v.Definition.Equal(j.Definition()):
		return nil, httpapi.Problem(protocol.CodeConflict, fmt.Sprintf(
			"nothing changes: version %d, which is in force, has the definition of version %d already", j.Version, v.Version))
	}
	return h.apply(ctx, name, contract.ApplyJob{Definition: *v.Definition, Expected: j.Version, Revert: true})
}
