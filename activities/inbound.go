package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// AssignmentTypes are the default types of events whose data is a task.
var AssignmentTypes = []string{"AgentTaskAssigned", "dev.mainstay.task.assigned", "InvokeModel", "InvokeTool"}

// Dispatcher starts the work that events from outside ask for.
type Dispatcher struct {
	places *ClusterPlaces
	types  []string // of events whose data is a task
	flows  flow.Evaluator
	shares *shares

	reading turns // one event of a tenant at a time looks for its jobs; the others use its result
	mu      sync.Mutex
	jobs    map[jobsOn]triggered
}

// jobsOn are the jobs of a tenant with a trigger for a type of event.
type jobsOn struct{ tenant, eventType string }

// triggered are jobs, for a moment.
type triggered struct {
	jobs  []triggeredJob
	until time.Time
}

// triggeredJob is a job that an event may start; nil plan: it is paused.
type triggeredJob struct {
	name       string
	definition *api.JobDefinition
	plan       *job.Plan
}

const (
	// triggersKept is how long a change of a job's triggers may be unknown, or lookRest times as long as it takes to
	// read them all.
	triggersKept = time.Second
	// mostTriggered bounds the jobs that one event may start.
	mostTriggered = 100
)

// NewDispatcher starts tasks at places. types are the types of events whose data is a task; nil: AssignmentTypes.
func NewDispatcher(places *ClusterPlaces, types []string) *Dispatcher {
	if types == nil {
		types = AssignmentTypes
	}
	return &Dispatcher{places: places, types: types, shares: newShares(shareRate, shareBurst),
		jobs: map[jobsOn]triggered{}}
}

// DispatchEvent starts the work that an event asks for: the task in its data, and a run for each trigger that it
// matches. It finds by its id what was started before. One failure does not stop the rest.
func (d *Dispatcher) DispatchEvent(
	ctx context.Context, in contract.DispatchEvent,
) (answer contract.EventDispatched, err error) {
	e := &in.Event
	if tenant, _ := api.CutTenant(in.ID); mesh.AssertTenant(e.Tenant(), tenant) != nil {
		return answer, mesh.ErrTenant
	}
	if in.Data == nil {
		in.Data = mesh.DataOf(e)
	}
	take := func(what, cluster string, started *api.Dispatch, err error) {
		if started != nil {
			answer.Dispatches = append(answer.Dispatches, *started)
		}
		if err != nil && answer.Problem == "" {
			answer.Problem = api.Shorten(what+": "+err.Error(), mesh.MaxProblem)
			if d.isFor(ctx, cluster, e.Tenant()) {
				answer.Cluster = cluster
			}
		}
	}
	if slices.Contains(d.types, e.Attr("type")) {
		id, spec, err := mesh.ReadAssignment(e, in.Data)
		if err == nil {
			err = payload.Task(&spec)
		}
		var started *api.Dispatch
		if err == nil {
			started, err = d.task(ctx, &in, id, spec)
		}
		take("the task in its data", spec.Cluster, started, err)
	}
	jobs, err := d.triggered(ctx, jobsOn{e.Tenant(), e.Attr("type")})
	if err != nil {
		return answer, err
	}
	if len(jobs) == 0 {
		return answer, nil
	}
	event := map[string]any{}
	for name, value := range e.Attributes {
		event[name] = value
	}
	event["data"] = in.Data
	text, err := json.Marshal(event)
	if err != nil {
		return answer, fmt.Errorf("encode the event: %w", err)
	}
	turn, err := d.shares.begin(ctx, e.Tenant(), len(text))
	if err != nil {
		return answer, err
	}
	defer turn.ended()
	facts, err := flow.EventFacts(text)
	if err != nil {
		return answer, err
	}
	for i := range jobs {
		for _, trigger := range jobs[i].definition.On {
			if ctx.Err() != nil {
				return answer, ctx.Err()
			}
			if t := trigger.Event; t != nil && t.Type == e.Attr("type") && (t.Source == "" ||
				t.Source == e.Attr("source")) {
				started, err := d.trigger(turn, &in, &jobs[i], t, facts)
				take("job "+jobs[i].name, jobs[i].definition.Cluster, started, err)
			}
		}
	}
	return answer, nil
}

// isFor reports whether the cluster exists and is for the tenant. A cluster for others does not learn of its events.
func (d *Dispatcher) isFor(ctx context.Context, cluster, tenant string) bool {
	if api.ValidateID("cluster", cluster) != nil {
		return false
	}
	view, err := d.places.view(ctx, cluster)
	return err == nil && view.Config.IsFor(tenant)
}

// trigger starts the run that a trigger asks for; nil: it does not match.
func (d *Dispatcher) trigger(
	turn *evaluating, in *contract.DispatchEvent, j *triggeredJob, t *api.EventTrigger, facts flow.Facts,
) (started *api.Dispatch, err error) {
	tenant, _ := api.CutTenant(j.name)
	if err := mesh.AssertTenant(in.Event.Tenant(), tenant); err != nil {
		return nil, err
	}
	starts, key, inputs, err := d.flows.Trigger(turn, t, facts)
	switch {
	case err != nil || !starts:
		return nil, err
	case j.plan == nil:
		return nil, errors.New("the job is paused: resume it, and replay the event")
	}
	plan, inputs, err := flow.Begin(turn, j.definition, j.plan, inputs)
	if err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	if len(inputs) > job.MaxInputsBytes {
		return nil, fmt.Errorf("inputs: have %d bytes; at most %d KiB are allowed: pass on where large data is",
			len(inputs), job.MaxInputsBytes>>10)
	}
	err = turn.aside(turn, func() error { // while clusters are asked, others of the tenant go first
		started, err = d.run(turn, in, j.name, *plan, tenant, key, inputs)
		return err
	})
	return started, err
}

// run starts a run of a job.
func (d *Dispatcher) run(
	ctx context.Context, in *contract.DispatchEvent, name string, plan job.Plan, tenant, key string,
	inputs json.RawMessage,
) (*api.Dispatch, error) {
	plan.Labels, plan.Steps = mesh.LabelOf(&in.Event, plan.Labels), slices.Clone(plan.Steps)
	for i := range plan.Steps {
		if s := &plan.Steps[i]; s.Task != nil {
			task := *s.Task
			task.Labels = mesh.LabelOf(&in.Event, task.Labels)
			s.Task = &task
		}
	}
	cluster, err := d.places.view(ctx, plan.Cluster)
	if store.KindOf(err) == store.NotFound {
		return nil, errors.New("there is no cluster " + plan.Cluster)
	} else if err != nil {
		return nil, err
	}
	id := mesh.RunID(name, &in.Event, key)
	runs := d.places.Control.store().Runs()
	err = runs.Start(ctx, id, in.ID, &contract.RunInput{Plan: plan, Inputs: inputs,
		Origin: api.RunOrigin{Event: in.ID}}, cluster.Config.TenantWeights[tenant])
	return d.started(ctx, in, api.Dispatch{Kind: api.DispatchRun, ID: id, Job: name}, err, func() (string, error) {
		_, digest, err := runs.Describe(ctx, id)
		return digest, err
	})
}

// task starts the task in an event's data.
func (d *Dispatcher) task(
	ctx context.Context, in *contract.DispatchEvent, id string, spec api.TaskSpec,
) (*api.Dispatch, error) {
	digest, err := spec.Digest()
	now := time.Now()
	if err = cmp.Or(err, api.ValidateStartAt(spec.StartAt, now), spec.ValidateExpiresAt(now)); err != nil {
		return nil, err
	}
	place, problem, err := d.places.Place(ctx, id, spec)
	if err != nil || problem != "" {
		return nil, errors.Join(err, told(problem))
	}
	input := place.Input(id, spec)
	input.By, input.Event = "event "+in.ID, in.ID
	tasks := d.places.Control.tasks()
	_, err = tasks.Start(ctx, &store.Submission{TaskInput: input, Digest: digest, Weight: place.TenantWeight})
	return d.started(ctx, in, api.Dispatch{Kind: api.DispatchTask, ID: id}, err, func() (string, error) {
		task, err := tasks.Describe(ctx, id)
		return task.Labels[mesh.LabelEvent], err
	})
}

func told(problem string) error {
	if problem == "" {
		return nil
	}
	return errors.New(problem)
}

// started is the record of a start that gave the error err; by finds the event that started what was there before.
func (d *Dispatcher) started(
	ctx context.Context, in *contract.DispatchEvent, started api.Dispatch, err error, by func() (string, error),
) (*api.Dispatch, error) {
	started.Key, started.Outcome = mesh.DispatchKey(in.Event.Attr("id"), started.ID), "started"
	if store.KindOf(err) == store.Exists {
		event, err := by()
		if err != nil {
			return nil, err
		}
		if event != in.ID {
			started.Outcome = "already_exists"
		}
		return &started, nil
	}
	if err != nil {
		return nil, err
	}
	return &started, nil
}

// triggered finds the jobs that a type of event may start.
func (d *Dispatcher) triggered(ctx context.Context, on jobsOn) ([]triggeredJob, error) {
	if known, fresh := d.known(on); fresh {
		return known.jobs, nil
	}
	turn, err := d.reading.take(ctx, on.tenant)
	if err != nil {
		return nil, err
	}
	defer turn.done()
	known, fresh := d.known(on)
	if fresh {
		return known.jobs, nil
	}
	s := d.places.Control.store()
	known, began := triggered{}, time.Now()
	for info, err := range s.Workflows(ctx, contract.JobsOn(on.tenant, on.eventType)) {
		if err != nil {
			return nil, fmt.Errorf("find the jobs that the event starts: %w", err)
		}
		name, _ := contract.JobOfWorkflowID(info.GetExecution().GetWorkflowId())
		j, err := s.Jobs().Get(ctx, name)
		if store.KindOf(err) == store.NotFound {
			continue // it was deleted
		}
		if err != nil {
			return nil, err
		}
		found := triggeredJob{name: name, definition: j.Definition()}
		if j.Paused == nil {
			if found.plan, err = flow.PlanOf(name, j.Version, found.definition); err != nil {
				return nil, err
			}
		}
		if known.jobs = append(known.jobs, found); len(known.jobs) > mostTriggered {
			return nil, fmt.Errorf("more than %d jobs have a trigger for it: have one job start the others", mostTriggered)
		}
	}
	known.until = time.Now().Add(max(triggersKept, lookRest*time.Since(began)))
	d.keep(on, known)
	return known.jobs, nil
}

// keep keeps the jobs that were found, and drops those too old to be used: definitions are large.
func (d *Dispatcher) keep(on jobsOn, found triggered) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.jobs, func(_ jobsOn, t triggered) bool { return time.Now().After(t.until) })
	d.jobs[on] = found
}

func (d *Dispatcher) known(on jobsOn) (known triggered, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known = d.jobs[on]
	return known, time.Now().Before(known.until)
}
