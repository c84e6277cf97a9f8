package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// Begin checks the inputs of a run of a job, fills in the defaults of their schema, and gives the plan the labels that
// the job has with these inputs.
func Begin(ctx context.Context, d *api.JobDefinition, p *job.Plan, inputs json.RawMessage) (
	*job.Plan, json.RawMessage, error,
) {
	inputs, err := CheckInputs(ctx, d.Inputs, inputs)
	if err != nil {
		return nil, nil, err
	}
	values, err := labelsOf(ctx, d, inputs)
	if err != nil || len(values) == 0 {
		return p, inputs, err
	}
	of := func(task *api.TaskSpec) *api.TaskSpec {
		if task == nil {
			return nil
		}
		filled := *task
		filled.Labels = maps.Clone(task.Labels)
		for name, value := range values {
			if filled.Labels[name] == d.Labels[name] { // else the task has a label of its own
				filled.Labels[name] = value
			}
		}
		return &filled
	}
	plan := *p
	plan.Labels, plan.Steps = maps.Clone(p.Labels), slices.Clone(p.Steps)
	maps.Copy(plan.Labels, values)
	for i := range plan.Steps {
		s := &plan.Steps[i]
		if s.Task = of(s.Task); s.Check != nil {
			check := *s.Check
			check.Task = of(check.Task)
			s.Check = &check
		}
	}
	return &plan, inputs, nil
}

// labelsOf are those labels of a job that hold expressions, with their values for a run.
func labelsOf(ctx context.Context, d *api.JobDefinition, inputs json.RawMessage) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(d.Labels)) {
		if !strings.Contains(d.Labels[name], "${") {
			continue
		}
		facts, err := FactsOf(inputs, nil, nil)
		if err != nil {
			return nil, err
		}
		value, err := (&Evaluator{}).renderText(ctx, "labels."+name, d.Labels[name], facts)
		if err == nil {
			values[name], err = job.Text(value)
		}
		if err == nil && strings.Contains(values[name], "${") {
			err = fmt.Errorf("labels.%s: would have ${ in it", name)
		}
		if err != nil {
			return nil, err
		}
	}
	return values, api.ValidateLabels(values)
}
