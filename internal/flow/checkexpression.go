package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"mainstay.dev/sdk/api"
)

// template has the texts of a task checked that hold expressions.
func (c *checker) template(at string, task *api.TaskSpec, check func(field, text string)) {
	value, err := taskValue(task)
	if err != nil {
		c.report(at, "%s", err)
		return
	}
	walk(at, value, check)
}

// taskValue is a task as JSON has it.
func taskValue(task *api.TaskSpec) (any, error) {
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	return decode(text)
}

func (c *checker) forEach(id string, s *api.Step) {
	at := "steps." + id
	if s.ForEach == nil {
		c.check(s.Parallel == 0, at+".max_parallel", "belongs to a step with for_each: add that, or remove this")
		c.check(s.Tolerate == api.Tolerance{}, at+".tolerate", "belongs to a step with for_each: add that, or remove this")
		return
	}
	if s.ForEach.Count == 0 {
		c.kind(at+".for_each", s.ForEach.List, id, "a list", "list")
	}
}

var outputName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,62}$`)

func (c *checker) outputs(id string, s *api.Step) {
	at := "steps." + id + ".output"
	c.check(len(s.Output) <= 32, at,
		"has %d names, and at most 32 are allowed: put some of them into one map", len(s.Output))
	for _, name := range slices.Sorted(maps.Keys(s.Output)) {
		c.check(outputName.MatchString(name), at+"."+name, "must be letters, digits and _, and not begin with a digit")
		variables := []string{varInputs, varSteps, varRun, varResult}
		if s.ForEach != nil {
			variables = []string{varInputs, varSteps, varRun, varResults, varFailed}
		}
		c.expression(at+"."+name, s.Output[name], id, variables...)
	}
}

// text checks the expressions in a text of a step.
func (c *checker) text(field, text, step string) {
	variables := []string{varInputs, varSteps, varRun}
	if c.definition.Steps[step].ForEach != nil {
		variables = append(variables, varItem, varIndex)
	}
	c.pieces(field, text, step, variables...)
}

// pieces checks the expressions in a text.
func (c *checker) pieces(field, text, step string, variables ...string) {
	parts, err := pieces(text)
	if err != nil {
		c.report(field, "%s", err)
		return
	}
	for _, p := range parts {
		if p.source == "" {
			continue
		}
		e, err := c.compile(p.source)
		if wrong, ok := errors.AsType[*mistake](err); ok {
			err = wrong.inText(p.source)
		}
		c.compiled(field, step, e, err, variables)
	}
}

func (c *checker) boolean(field, source, step string) {
	c.kind(field, source, step, "true or false", "bool")
}

// kind checks an expression that must give a type; one that gives any type may.
func (c *checker) kind(field, source, step, want, name string) {
	if e := c.expression(field, source, step, varInputs, varSteps, varRun); e != nil {
		got := e.kind.TypeName()
		c.check(got == name || got == "dyn", field, "must give %s, and gives %s", want, typeWord(got))
	}
}

// onlyIn says where variables are known that are not known everywhere.
var onlyIn = map[string]string{
	varItem:    ": only the task of a step with for_each can",
	varIndex:   ": only the task of a step with for_each can",
	varResult:  ": only output and check can, of a step without for_each",
	varResults: ": only output can, of a step with for_each",
	varFailed:  ": only output can, of a step with for_each",
	varEvent:   ": only a trigger by event can; hand on what is needed with its inputs",
}

// stepFields are what expressions may read of a step.
var stepFields = []string{"status", "output", "error", "failed"}

// expression checks CEL. step is the step that it belongs to; variables are the ones that it may read.
func (c *checker) expression(field, source, step string, variables ...string) *expression {
	e, err := c.compile(source)
	return c.compiled(field, step, e, err, variables)
}

func (c *checker) compile(source string) (*expression, error) {
	if c.sources += len(source); c.sources > maxSources {
		return nil, fmt.Errorf("and the expressions before it have more than %d KiB", maxSources>>10)
	}
	return compile(source)
}

// compiled checks what an expression reads; err: it is none.
func (c *checker) compiled(field, step string, e *expression, err error, variables []string) *expression {
	if err != nil {
		c.report(field, "%s", err)
		return nil
	}
	for _, name := range e.names {
		if !slices.Contains(variables, name) {
			c.report(field, "cannot use %s here%s; there are %s", name, onlyIn[name], strings.Join(variables, ", "))
		}
	}
	for _, name := range e.inputs {
		if c.inputs != nil && !slices.Contains(c.inputs, name) {
			c.report(field, "reads inputs.%s, which inputs does not declare%s", name, didYouMean(name, c.inputs))
		}
	}
	for _, other := range slices.Sorted(maps.Keys(e.steps)) {
		c.stepReference(field, step, other, e.steps[other])
	}
	if s := c.definition.Steps[step]; s != nil && s.Task != nil && s.Task.Type == api.ExecType {
		c.check(!e.parsed, field, "reads a field of text: "+lastLine)
	}
	for _, compared := range e.statuses {
		c.status(field, step, compared)
	}
	return e
}

func (c *checker) stepReference(field, step, other string, fields []string) {
	ids := slices.Sorted(maps.Keys(c.definition.Steps))
	switch _, placed := c.levels[step]; {
	case c.definition.Steps[other] == nil:
		c.report(field, "reads steps.%s, and there is no such step%s", other, didYouMean(other, ids))
		return
	case other == step:
		c.report(field, "reads the step itself; use result")
		return
	case placed && !slices.Contains(c.before[step], other):
		c.report(
			field,
			"reads steps.%s, which may not have ended by then: add %s to steps.%s.after",
			other,
			other,
			step,
		)
	}
	of := c.definition.Steps[other]
	c.check(of.ForEach == nil || len(of.Output) > 0 || !slices.Contains(fields, outputField), field,
		"reads the output of %[1]s, and a step with for_each has only what its output names: write output: {results: results} "+
			"in %[1]s", other)
	for _, f := range fields {
		if f != "" && !slices.Contains(stepFields, f) {
			c.report(field, "reads steps.%s.%s; a step has %s", other, f, strings.Join(stepFields, ", "))
		}
		c.check(f != varFailed || of.ForEach != nil, field,
			"reads steps.%[1]s.failed, which lists the elements of a for_each that failed, and %[1]s has none: "+
				"ask for steps.%[1]s.status", other)
	}
}
