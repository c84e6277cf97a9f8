package job

import (
	"time"

	"mainstay.dev/sdk/api"
)

// PlanVersion is the newest version of plans that the Run workflow carries out.
const PlanVersion = 1

// DefaultBeacon is the silence after which an attempt of a watched step counts as failed.
const DefaultBeacon = 45 * time.Second

// Plan is a definition that has been checked and ordered, as its runs carry it.
type Plan struct {
	Version     int               `json:"plan_version"`
	Job         string            `json:"job"`
	JobVersion  int               `json:"job_version,omitempty"`
	Cluster     string            `json:"cluster"`
	Tenant      string            `json:"tenant,omitempty"`
	Priority    api.Priority      `json:"priority,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Deadline    api.Duration      `json:"deadline,omitempty"`
	Concurrency *api.Concurrency  `json:"concurrency,omitempty"`
	Budget      *api.Budget       `json:"budget,omitempty"`
	Requires    *api.Requires     `json:"requires,omitempty"`
	Steps       []PlannedStep     `json:"steps"` // by level, then by id
}

// PlannedStep is a step with its defaults.
type PlannedStep struct {
	ID    string `json:"id"`
	Level int    `json:"level"` // the longest way from a step without dependencies, which is at 0
	api.Step
	// Dynamic reports whether its task holds expressions.
	Dynamic bool `json:"dynamic,omitempty"`
	// Plain reports whether it begins without an evaluation: it has no condition and no elements, and its expressions
	// are references.
	Plain bool `json:"plain,omitempty"`
}

// Step is the step with an id; nil for none.
func (p *Plan) Step(id string) *PlannedStep {
	for i := range p.Steps {
		if p.Steps[i].ID == id {
			return &p.Steps[i]
		}
	}
	return nil
}

// ToolTask is the task of a call of one of the step's tools, without its payload; nil: it has none of that name.
func (p *Plan) ToolTask(s *PlannedStep, name string) *api.TaskSpec {
	for i := range s.Tools {
		if t := &s.Tools[i]; t.Name == name {
			return &api.TaskSpec{Type: api.ToolTask, Cluster: p.Cluster, Tenant: p.Tenant, Priority: p.Priority,
				Labels: p.Labels, RequiredCapabilities: []string{api.ToolCapability(t.Server)}, RetrySafety: t.Safety,
				Retry: s.Task.Retry, Recovery: s.Task.Recovery, Timeout: s.Task.Timeout}
		}
	}
	return nil
}

// Levels are the steps in their order; those of one level may run side by side.
func (p *Plan) Levels() (levels [][]string) {
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Level == len(levels) {
			levels = append(levels, []string{s.ID})
		} else {
			levels[s.Level] = append(levels[s.Level], s.ID)
		}
	}
	return levels
}
