package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/spelling"
)

// checker checks a definition whose form is right.
type checker struct {
	definition *api.JobDefinition
	places     *document.Places
	problems   []document.Problem

	order   []string            // the steps, by level, then by id
	levels  map[string]int      // of steps
	before  map[string][]string // the steps that a step depends on, in any number of hops
	dynamic map[string]bool     // whether a step's task holds expressions
	compute map[string]bool     // whether one of them is more than a reference
	inputs  []string            // the names that the schema of the inputs declares; nil: any

	sources int // bytes of the expressions so far
}

// maxSources bounds the expressions of a definition together, in bytes: checking 4 KiB takes up to 0.1 s.
const maxSources = 64 << 10

// maxProblems bounds the problems that are reported for a definition.
const maxProblems = 100

func (c *checker) report(field, format string, args ...any) {
	if len(c.problems) >= maxProblems {
		return
	}
	c.problems = append(c.problems, c.places.Place(field, format, args...))
}

// check reports a problem unless ok, and returns ok.
func (c *checker) check(ok bool, field, format string, args ...any) bool {
	if !ok {
		c.report(field, format, args...)
	}
	return ok
}

// invalid reports an error of a field; the message need not name the field again.
func (c *checker) invalid(field string, err error) {
	var inner *api.FieldError
	if errors.As(err, &inner) && strings.HasPrefix(inner.Field, field+".") {
		c.report(inner.Field, "%s", inner.Err)
	} else if err != nil {
		text := strings.TrimPrefix(err.Error(), api.ErrInvalidID.Error()+": ")
		c.report(field, "%s", strings.TrimPrefix(text, field[strings.LastIndex(field, ".")+1:]+" "))
	}
}

// oneOf checks a word; "" is the default.
func oneOf[T ~string](c *checker, field string, value T, words ...T) bool {
	if value == "" || slices.Contains(words, value) {
		return true
	}
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = string(w)
	}
	near := spelling.Nearest(string(value), names)
	if near != "" {
		near = fmt.Sprintf("; did you mean %s?", near)
	}
	return c.check(false, field, "must be one of %s%s", strings.Join(names, ", "), near)
}

func (c *checker) job() {
	d := c.definition
	if d.Job == "" {
		c.report("job", "is missing: give the job a name, like nightly-report")
	} else {
		c.invalid("job", api.ValidateID("job", d.Job))
		c.check(len(d.Job) <= job.MaxNameLength, "job", "is longer than %d characters", job.MaxNameLength)
	}
	oneOf(c, "type", d.Type, api.JobBatch, api.JobService, api.JobSystem, api.JobSysbatch)
	if d.Cluster == "" {
		c.report("cluster", "is missing: name the cluster whose agents do the work, like default")
	} else {
		c.invalid("cluster", api.ValidateID("cluster", d.Cluster))
	}
	if d.Tenant != "" {
		c.invalid("tenant", api.ValidateID("tenant", d.Tenant))
	}
	c.invalid("labels", api.ValidateLabels(d.Labels))
	c.safety("safety", d.Safety)
	c.retry("retry", d.Retry)
	c.recovery("recovery", d.Recovery, c.places.Written("retry"))
	c.inputSchema()
	for _, name := range slices.Sorted(maps.Keys(d.Labels)) {
		switch value := d.Labels[name]; {
		case !strings.Contains(value, "${"):
		case d.HasInstances():
			c.report("labels."+name, "holds an expression, and a job with instances has no inputs: write the value")
		default:
			c.pieces("labels."+name, value, "", varInputs)
		}
	}
	c.triggers()
	if b := d.Budget; b != nil {
		c.check(b.Tokens > 0 || b.MicroUSD() > 0, "budget", "must give tokens or usd")
	}
	if d.Concurrency != nil {
		oneOf(c, "concurrency.then", d.Concurrency.Then, api.ThenQueue, api.ThenSkip, api.ThenCancelOther)
		if d.Concurrency.Key != "" {
			c.expression("concurrency.key", d.Concurrency.Key, "", varInputs)
		}
	}
	c.check(d.Update == nil || d.Type == api.JobService || d.Type == api.JobSystem, "update",
		"belongs to a service or system job: remove it")
	for n, name := range d.Required() {
		c.invalid("requires.services", api.ValidateID("services", name))
		c.check(n < maxRequired, "requires.services", "has more than %d services", maxRequired)
	}
	if d.Instances != nil || d.Type != "" && d.Type != api.JobBatch {
		c.instances()
		return
	}
	if !c.check(
		len(d.Steps) > 0,
		"steps",
		"is missing: a job needs at least one step, like {build: {task: {type: exec, payload: {command: [make]}}}}",
	) ||
		!c.check(len(d.Steps) <= job.MaxSteps, "steps", "has %d steps; at most %d are allowed", len(d.Steps),
			job.MaxSteps) {
		return
	}
	ids := slices.Sorted(maps.Keys(d.Steps))
	for _, id := range ids {
		if d.Steps[id] == nil {
			c.report("steps."+id, "is empty: say what it does with task, approve or wait")
			d.Steps[id] = &api.Step{}
		}
		c.check(
			stepID.MatchString(id),
			"steps."+id,
			"must be 1 to 24 characters of a-z, 0-9 and -, and begin with a letter",
		)
	}
	c.dependencies(ids)
	c.dynamic, c.compute = map[string]bool{}, map[string]bool{}
	for _, id := range ids {
		c.step(id, d.Steps[id])
	}
}

var stepID = regexp.MustCompile(`^[a-z][a-z0-9-]{0,23}$`)

func (c *checker) safety(field string, s api.RetrySafety) {
	oneOf(c, field, s, api.Idempotent, api.Fenced, api.AtMostOnce, api.Unmarked)
}

// retry checks a policy by the rules of tasks.
func (c *checker) retry(field string, policy api.RetryPolicy) {
	c.task(field, &api.TaskSpec{Type: "x", Cluster: "x", Retry: policy}, "retry.")
}

// recovery checks a recovery beside which there may be no retry, and fills it.
func (c *checker) recovery(field string, r *api.Recovery, retry bool) {
	if r == nil {
		return
	}
	c.check(!retry, field, "takes the place of retry: keep one of them")
	var wrong *api.FieldError
	if err := r.Validate(); errors.As(err, &wrong) {
		c.report(field+strings.TrimPrefix(wrong.Field, "recovery"), "%s", wrong.Err)
		return
	}
	if c.definition.OnEachAgent() {
		r.Mode = cmp.Or(r.Mode, api.LocalRestart)
		c.check(r.Mode != api.ClusterRecover, field,
			"cannot be cluster_recover: an instance of this job stays on its agent; write local_restart or manual_recover")
	}
	*r = *r.WithDefaults(c.definition.KeepsRunning())
}

// task reports what a task may not have. prefix is taken off the field that the message begins with.
func (c *checker) task(field string, spec *api.TaskSpec, prefix string) {
	err := spec.Validate()
	if err == nil {
		return
	}
	text := strings.TrimPrefix(err.Error(), api.ErrInvalidID.Error()+": ")
	if name, what, _ := strings.Cut(strings.TrimPrefix(text, prefix), " "); c.places.Written(field + "." + name) {
		c.report(field+"."+name, "%s", what)
	} else {
		c.report(field, "%s", text)
	}
}

func (c *checker) inputSchema() {
	schema, parts, err := compileSchema(c.definition.Inputs)
	if err != nil {
		c.report("inputs", "is not a valid JSON Schema: %s", err)
	}
	if schema != nil {
		c.words("inputs", c.definition.Inputs)
		c.invalid("inputs", checkDefaults(WithLimit(context.Background()), schema, parts, "inputs"))
	}
	if schema != nil && len(schema.Properties) > 0 && schema.PatternProperties == nil {
		c.inputs = slices.Sorted(maps.Keys(schema.Properties))
	}
}

func (c *checker) triggers() {
	c.check(len(c.definition.On) <= job.MaxTriggers, "on", "has %d triggers, and at most %d are allowed: one cron may "+
		"name several times, like 0 3,15 * * *; or make another job", len(c.definition.On), job.MaxTriggers)
	ctx := WithLimit(context.Background())
	for i, trigger := range c.definition.On {
		at := fmt.Sprintf("on[%d]", i)
		s := trigger.Schedule
		if trigger.Event != nil {
			c.check(s == nil, at, "has schedule and event: make two triggers of them")
			c.eventTrigger(at+".event", trigger.Event)
			continue
		}
		if !c.check(s != nil, at, "must say when, like {schedule: {cron: \"0 3 * * *\"}}, or {event: {type: …}}") {
			continue
		}
		var wrong *api.FieldError
		if err := job.SchedulePlan(s).Validate(time.Now()); errors.As(err, &wrong) {
			c.report(at+".schedule."+wrong.Field, "%s", wrong.Err)
		}
		inputs, err := CheckInputs(ctx, c.definition.Inputs, s.Inputs)
		if err == nil && len(c.problems) == 0 {
			_, err = labelsOf(ctx, c.definition, inputs)
		}
		if err != nil {
			c.report(at+".schedule.inputs", "do not fit the inputs of the job: %s", err)
		}
	}
}

// eventTrigger checks what an event starts.
func (c *checker) eventTrigger(at string, t *api.EventTrigger) {
	c.check(t.Type != "" && len(t.Type) <= 255, at+".type", "is missing, or longer than 255 bytes")
	if t.Where != "" {
		if e := c.expression(at+".where", t.Where, "", varEvent); e != nil {
			got := e.kind.TypeName()
			c.check(got == "bool" || got == "dyn", at+".where", "must give true or false, and gives %s", typeWord(got))
		}
	}
	if t.Key != "" {
		c.expression(at+".key", t.Key, "", varEvent)
	}
	value, err := decode(t.Inputs)
	c.check(err == nil && (t.Inputs == nil || len(t.Inputs) <= job.MaxInputsBytes), at+".inputs",
		"must be JSON of at most 64 KiB")
	walk(at+".inputs", value, func(field, text string) { c.pieces(field, text, "", varEvent) })
}

// dependencies checks after, and orders the steps.
func (c *checker) dependencies(ids []string) {
	steps := c.definition.Steps
	for _, id := range ids {
		for i, dependency := range steps[id].After {
			field := fmt.Sprintf("steps.%s.after[%d]", id, i)
			switch {
			case dependency == id:
				c.report(field, "a step cannot come after itself; remove it")
			case steps[dependency] == nil:
				c.report(field, "there is no such step%s", didYouMean(dependency, ids))
			case slices.Contains(steps[id].After[:i], dependency):
				c.report(field, "stands here twice; remove one")
			}
		}
	}
	c.levels, c.before = map[string]int{}, map[string][]string{}
	for len(c.levels) < len(ids) {
		progress := false
		for _, id := range ids {
			if _, placed := c.levels[id]; placed || !c.place(id) {
				continue
			}
			progress = true
		}
		if !progress {
			c.cycle(ids)
			break
		}
	}
	c.order = slices.Clone(ids)
	slices.SortStableFunc(c.order, func(a, b string) int { return cmp.Compare(c.levels[a], c.levels[b]) })
}

// place gives a step its level, if the steps before it have theirs.
func (c *checker) place(id string) bool {
	level, before := 0, []string{}
	for _, dependency := range c.definition.Steps[id].After {
		if dependency == id || c.definition.Steps[dependency] == nil {
			continue // reported
		}
		at, placed := c.levels[dependency]
		if !placed {
			return false
		}
		level = max(level, at+1)
		before = append(before, dependency)
		before = append(before, c.before[dependency]...)
	}
	slices.Sort(before)
	c.levels[id], c.before[id] = level, slices.Compact(before)
	return true
}

// cycle reports one circle of dependencies.
func (c *checker) cycle(ids []string) {
	var at string
	for _, id := range ids {
		if _, placed := c.levels[id]; !placed {
			at = id
			break
		}
	}
	var way []string
	for !slices.Contains(way, at) {
		way = append(way, at)
		for _, dependency := range slices.Sorted(slices.Values(c.definition.Steps[at].After)) {
			if _, placed := c.levels[dependency]; !placed && c.definition.Steps[dependency] != nil && dependency != at {
				at = dependency
				break
			}
		}
	}
	way = append(way[slices.Index(way, at):], at)
	c.report("steps."+at+".after", "goes in a circle: %s; remove one of these dependencies",
		strings.Join(way, " after "))
}

func didYouMean(word string, names []string) string {
	if near := spelling.Nearest(word, names); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return "; there are " + strings.Join(names, ", ")
}

func (c *checker) step(id string, s *api.Step) {
	at := "steps." + id
	kinds := 0
	for _, given := range []bool{s.Task != nil, s.Approve != nil, s.Wait != nil} {
		if given {
			kinds++
		}
	}
	c.check(kinds > 0, at, "does not say what it does: give it task, approve or wait")
	c.check(kinds < 2, at, "does several things; keep one of task, approve and wait, and make steps of the others")
	c.check(s.Join.N <= len(s.After) || len(s.After) == 0, at+".join",
		"asks for %d steps, but after names %d: name more of them there, or ask for fewer", s.Join.N, len(s.After))
	c.check(
		s.Join.All() || len(s.Output) > 0,
		at+".output",
		"is missing: with join any or a number it is not certain which steps have ended; say with output what this step "+
			"hands on",
	)
	c.check(s.Join.All() || len(s.After) > 0, at+".join",
		"needs after: name there the steps of which so many must be through")
	if s.If != "" {
		c.boolean(at+".if", s.If, id)
	}
	c.safety(at+".safety", s.Safety)
	oneOf(c, at+".on_failure", s.OnFailure, api.FailRun, api.FailPartial, api.FailSkip, api.FailHold)
	if s.TerminalSink {
		c.sink(id)
	}
	switch {
	case s.Task != nil:
		c.taskStep(id, s)
	case s.Approve != nil:
		c.check(s.Approve.Message != "", at+".approve.message", "is missing: say what the person is asked")
		c.text(at+".approve.message", s.Approve.Message, id)
	case s.Wait != nil:
		c.check((s.Wait.For != 0) != (s.Wait.Until != ""), at+".wait", "needs one of for and until, like {for: 1h}")
		if s.Wait.Until != "" {
			c.expression(at+".wait.until", s.Wait.Until, id, varInputs, varSteps, varRun)
		}
	}
	if s.Task == nil {
		c.onlyTasks(at, s)
	}
}

// onlyTasks refuses what a step without a task cannot have.
func (c *checker) onlyTasks(at string, s *api.Step) {
	for field, given := range map[string]bool{"for_each": s.ForEach != nil, "safety": s.Safety != "",
		"retry": s.Retry != nil, "recovery": s.Recovery != nil, "timeout": s.Timeout != 0, "beacon": s.Beacon != nil,
		"stop_grace": s.StopGrace != nil, "disconnect_grace": s.Away != nil,
		"place": s.Place != nil, "output": len(s.Output) > 0,
		"result_limit": s.ResultLimit != 0, "terminal_sink": s.TerminalSink, "check": s.Check != nil,
		"tools": len(s.Tools) > 0, "max_turns": s.Turns != 0} {
		c.check(!given, at+"."+field, "belongs to a step with a task: remove it here")
	}
}

// sink checks that nothing depends on a step that may complete the run.
func (c *checker) sink(id string) {
	for _, other := range slices.Sorted(maps.Keys(c.definition.Steps)) {
		if slices.Contains(c.definition.Steps[other].After, id) {
			c.report("steps."+id+".terminal_sink", "may complete the run, so no step can come after it; %s does", other)
			return
		}
	}
}

func (c *checker) taskStep(id string, s *api.Step) {
	at := "steps." + id
	if s.Retry != nil {
		c.retry(at+".retry", *s.Retry)
	}
	c.recovery(at+".recovery", s.Recovery, s.Retry != nil)
	c.check(s.Deadline == 0 || s.Timeout <= s.Deadline, at+".timeout",
		"is longer than deadline (%s): shorten it, or lengthen deadline", s.Deadline)
	c.check(s.Away == nil || cmp.Or(s.Safety, c.definition.Safety) != api.Fenced, at+".disconnect_grace",
		"has no use for fenced work: an agent that is out of touch stops it when its lease ends; remove it")
	c.demand(at, s.Place)
	c.check(s.ResultLimit <= 1<<20, at+".result_limit", "must be at most 1MiB")
	task := *s.Task
	c.ofAnotherLevel(at+".task", &task)
	for name, to := range map[string]struct {
		given bool
		key   string
	}{
		"retry":        {task.Retry.MaxAttempts+task.Retry.MaxTransfers+len(task.Retry.NonRetryable) > 0, "retry"},
		"retry_safety": {task.RetrySafety != "", "safety"}, "timeout": {task.Timeout != 0, "timeout"},
		"stop_grace":       {task.StopGrace != nil, "stop_grace"},
		"disconnect_grace": {task.DisconnectGrace != nil, "disconnect_grace"},
		"beacon_timeout":   {task.BeaconTimeout != 0, "beacon"}, "place": {!task.Place.IsZero(), "place"},
		"recovery": {task.Recovery != nil, "recovery"},
	} {
		c.check(!to.given, at+".task."+name, "belongs to the step: write %s beside task", to.key)
	}
	if task.Type == "" {
		c.report(at+".task.type", "is missing: say what kind of work it is, like exec")
		task.Type = "x"
	}
	c.payload(at+".task", s.Task)
	task.Payload = s.Task.Payload
	c.template(at+".task", s.Task, func(field, text string) {
		c.dynamic[id], c.compute[id] = true, c.compute[id] || !job.IsReference(text)
		c.text(field, text, id)
	})
	rendered := constant(&task)
	c.task(at+".task", &rendered, "")
	c.forEach(id, s)
	c.outputs(id, s)
	c.tools(id, s)
	if s.Check != nil {
		c.resultCheck(id, s)
	}
}

// constant is what a task has that no expression changes.
func constant(task *api.TaskSpec) api.TaskSpec {
	return api.TaskSpec{Type: task.Type, Cluster: "x", Payload: task.Payload, Priority: task.Priority,
		RequiredCapabilities: task.RequiredCapabilities, PreferredCapabilities: task.PreferredCapabilities,
		Routes: task.Routes, ExpiresIn: task.ExpiresIn}
}

// ofAnotherLevel refuses fields that the job sets for all of its tasks.
func (c *checker) ofAnotherLevel(at string, task *api.TaskSpec) {
	for name, given := range map[string]bool{"cluster": task.Cluster != "", "tenant": task.Tenant != "",
		"start_at": !task.StartAt.IsZero()} {
		c.check(!given, at+"."+name, "belongs to the job; remove it here")
	}
	c.check(task.ExpiresAt.IsZero(), at+".expires_at", "is one time, and a job runs many times: write expires_in")
	c.check(!task.KeepRunning, at+".keep_running", "is for work without end, and a step has one: remove it")
}

// resultCheck checks what is wanted of a step's result.
func (c *checker) resultCheck(id string, s *api.Step) {
	at := "steps." + id + ".check"
	c.check(s.ForEach == nil, at, "belongs to a step without for_each: check the results in a step after it")
	_, _, err := compileSchema(s.Check.Schema)
	if c.check(err == nil, at+".schema", "is not a valid JSON Schema: %v", err) {
		c.words(at+".schema", s.Check.Schema)
	}
	c.check(len(s.Check.Schema)+len(s.Check.Rules) > 0 || s.Check.Task != nil, at,
		"says nothing: give it schema, rules or task")
	if task := s.Check.Task; task != nil {
		c.ofAnotherLevel(at+".task", task)
		c.payload(at+".task", task)
		c.template(at+".task", task, func(field, text string) {
			c.pieces(field, text, id, varInputs, varSteps, varRun, varResult)
		})
		rendered := constant(task)
		rendered.Retry, rendered.RetrySafety, rendered.Timeout = task.Retry, task.RetrySafety, task.Timeout
		c.task(at+".task", &rendered, "")
	}
	for i, rule := range s.Check.Rules {
		field := fmt.Sprintf("%s.rules[%d]", at, i)
		c.check(rule.Else != "", field+".else", "is missing: say what is wrong where the rule does not hold")
		if e := c.expression(field+".that", rule.That, id, varInputs, varSteps, varRun, varResult); e != nil {
			c.check(e.kind.TypeName() == "bool" || e.kind.TypeName() == "dyn", field+".that", "must give true or false")
		}
	}
	oneOf(c, at+".exhausted", s.Check.Exhausted, api.CheckExhaustedReview, api.CheckExhaustedFail)
}

// demand checks what a step, or the instances, ask of their agents; nil: nothing.
func (c *checker) demand(at string, d *api.Demand) {
	var wrong *api.FieldError
	if d != nil && errors.As(d.Validate(), &wrong) {
		c.report(at+"."+wrong.Field, "%s", wrong.Err)
	}
}
