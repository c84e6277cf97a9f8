// Package flow reads the definitions of jobs and makes plans of them. It alone knows the expression language, which is
// CEL.
package flow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// Read reads a definition, YAML or JSON, checks it, and makes a plan of it. name stands for the file in problems. Its
// error is a *document.Error with everything that is wrong.
func Read(name string, text []byte) (*api.JobDefinition, *job.Plan, error) {
	return read(name, "", text)
}

// ReadOf is Read of the definition of a job, which may leave the job's name out.
func ReadOf(jobName string, text []byte) (*api.JobDefinition, *job.Plan, error) {
	return read("", jobName, text)
}

func read(name, jobName string, text []byte) (*api.JobDefinition, *job.Plan, error) {
	if len(text) > job.MaxDefinition {
		return nil, nil, &document.Error{Problems: []document.Problem{{File: name,
			What: fmt.Sprintf("is larger than %d KiB", job.MaxDefinition>>10)}}}
	}
	var definition api.JobDefinition
	places, err := document.Read(name, text, &definition, hint)
	if err != nil {
		return nil, nil, err
	}
	definition.Job = cmp.Or(definition.Job, jobName)
	c := &checker{definition: &definition, places: places}
	c.job()
	if len(c.problems) > 0 {
		slices.SortStableFunc(c.problems, func(a, b document.Problem) int {
			return cmp.Or(a.Line-b.Line, a.Column-b.Column)
		})
		return nil, nil, &document.Error{Problems: c.problems}
	}
	return &definition, c.plan(), nil
}

// PlanOf is the plan of a version of a job whose definition was read before. name is the job's full one.
func PlanOf(name string, version int, d *api.JobDefinition) (*job.Plan, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	_, plan, err := Read("", text)
	if err != nil {
		return nil, err
	}
	plan.Job, plan.JobVersion = name, version
	return plan, nil
}

// Warnings are what a person may want to know about a plan that is valid.
func Warnings(d *api.JobDefinition, p *job.Plan) []string {
	var unmarked []string
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Task != nil && s.Safety == api.Unmarked {
			unmarked = append(unmarked, s.ID)
		}
	}
	warnings := append(readsSkipped(p), sharesPort(d)...)
	if len(unmarked) > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"unmarked is the safety of %s: an attempt that is lost with its agent waits for a person; write safety: "+
				"idempotent, fenced or at_most_once",
			strings.Join(unmarked, ", ")))
	}
	return warnings
}

// plan is the definition with its defaults, in the order of its steps. The definition has been checked.
func (c *checker) plan() *job.Plan {
	d := c.definition
	p := &job.Plan{Version: job.PlanVersion, Job: d.Job, Cluster: d.Cluster, Tenant: d.Tenant, Priority: d.Priority,
		Labels: d.Labels, Deadline: d.Deadline, Concurrency: d.Concurrency, Budget: d.Budget,
		Requires: d.Requires}
	for _, id := range c.order {
		planned := job.PlannedStep{ID: id, Level: c.levels[id], Step: *d.Steps[id], Dynamic: c.dynamic[id]}
		s := &planned.Step
		planned.Plain = !c.compute[id] && s.If == "" && s.ForEach == nil &&
			(s.Approve == nil || !strings.Contains(s.Approve.Message, "${")) && (s.Wait == nil || s.Wait.Until == "")
		slices.Sort(s.After)
		if s.Task != nil {
			task := c.ofJob(s.Task)
			s.Safety = cmp.Or(s.Safety, d.Safety, api.Unmarked)
			task.Retry, task.Recovery, task.Timeout = d.Retry, cmp.Or(s.Recovery, d.Recovery), s.Timeout
			if s.Retry != nil {
				task.Retry, task.Recovery = *s.Retry, nil
			} else if s.Recovery != nil {
				task.Retry = api.RetryPolicy{}
			}
			if s.Beacon != nil {
				task.BeaconTimeout = api.Duration(s.Beacon.Timeout.Or(job.DefaultBeacon))
			} else if task.Type == api.ExecType && s.ForEach == nil {
				task.BeaconTimeout = api.Duration(job.DefaultBeacon)
			}
			if s.Place != nil {
				task.Place = *s.Place
			}
			task.RetrySafety, task.StopGrace = s.Safety, cmp.Or(s.StopGrace, d.StopGrace)
			if s.Safety != api.Fenced {
				task.DisconnectGrace = cmp.Or(s.Away, d.Away)
			}
			s.Task, s.Retry, s.Recovery, s.Place = task, nil, nil, nil
			s.ResultLimit = cmp.Or(s.ResultLimit, job.DefaultResultLimit)
			if s.Check != nil && s.Check.Task != nil {
				check := *s.Check
				check.Task, s.Check = c.ofJob(check.Task), &check
			}
		}
		if s.Tools = slices.Clone(s.Tools); len(s.Tools) > 0 {
			s.Turns = cmp.Or(s.Turns, job.DefaultTurns)
		}
		for i := range s.Tools {
			s.Tools[i].Safety = cmp.Or(s.Tools[i].Safety, api.AtMostOnce)
		}
		s.OnFailure = cmp.Or(s.OnFailure, api.FailRun)
		if s.ForEach != nil {
			s.Parallel = cmp.Or(s.Parallel, job.DefaultParallel)
		}
		p.Steps = append(p.Steps, planned)
	}
	return p
}

// ofJob is a task with what the job says of all of its tasks.
func (c *checker) ofJob(task *api.TaskSpec) *api.TaskSpec {
	d, t := c.definition, *task
	t.Cluster, t.Tenant, t.Priority = d.Cluster, d.Tenant, cmp.Or(t.Priority, d.Priority)
	if len(d.Labels) > 0 {
		t.Labels = maps.Clone(d.Labels)
		maps.Copy(t.Labels, task.Labels)
	}
	return &t
}
