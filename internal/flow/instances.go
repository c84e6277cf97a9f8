package flow

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
)

// maxRequired bounds the services that a job requires: each costs looks.
const maxRequired = 8

// instances checks a job whose work is instances.
func (c *checker) instances() {
	d := c.definition
	if d.Instances == nil {
		c.report("instances", "is missing: a %s job has instances, like {task: {type: exec, payload: {command: [serve]}}}",
			d.Type)
		return
	}
	if d.Type == "" || d.Type == api.JobBatch {
		c.report("instances", "belongs to a job of type service, system or sysbatch: write one of these as type")
		return
	}
	for field, given := range map[string]bool{"steps": len(d.Steps) > 0, "inputs": len(d.Inputs) > 0,
		"on": len(d.On) > 0, "concurrency": d.Concurrency != nil, "deadline": d.Deadline != 0,
		"budget": d.Budget != nil} {
		c.check(!given, field, "belongs to a batch job, and this one is of type %s: remove it", d.Type)
	}
	in, service := d.Instances, d.Type == api.JobService
	c.check(in.Count == nil || service, "instances.count", "belongs to a service: a %s job has one instance on each agent",
		d.Type)
	if in.Service != nil {
		c.invalid("instances.service.name", api.ValidateID("name", in.Service.Name))
		for _, tag := range in.Service.Tags {
			c.invalid("instances.service.tags", api.ValidateID("tags", tag))
		}
	}
	var wrong *api.FieldError
	if in.Health != nil && errors.As(in.Health.Validate(), &wrong) {
		at := "instances.health"
		if wrong.Field != "" {
			at += "." + wrong.Field
		}
		c.report(at, "%s", wrong.Err)
	}
	if away := in.Disconnect; away != nil {
		c.check(away.Grace == 0 || d.Safety != api.Fenced, "instances.disconnect.grace",
			"has no use for fenced instances: an agent that is out of touch stops them when its lease ends; remove it, or "+
				"write safety: idempotent")
	}
	if p := in.Place; p != nil {
		c.demand("instances", &p.Demand)
		c.check(p.Zone == "" || !service, "instances.place.zone",
			"belongs to system and sysbatch jobs: give the agents of the zone a capability, and write capabilities")
		c.check(p.Affinity == "" || service, "instances.place.affinity",
			"belongs to a service: a %s job has one instance on each agent", d.Type)
	}
	for _, name := range d.Required() {
		c.check(in.Service == nil || in.Service.Name != name, "requires.services",
			"has the job's own service %s, which could never start: remove it", name)
	}
	c.update()
	c.instanceTask(in.Task)
}

// update checks how a new version takes the place of the one before.
func (c *checker) update() {
	given, u := c.definition.Update, c.definition.Updating()
	if given == nil {
		return
	}
	c.check(u.Order == api.StartFirst || u.Order == api.StopFirst, "update.order", "must be start_first or stop_first")
	c.check(u.Promote == api.PromoteManual || u.Promote == api.PromoteAuto, "update.promote", "must be manual or auto")
	c.check(u.HealthyAfter < u.HealthyWithin, "update.healthy_within", "must be longer than healthy_after, which is %s",
		u.HealthyAfter.Std())
	c.check(u.HealthyWithin <= u.ProgressWithin, "update.progress_within",
		"must not be shorter than healthy_within, which is %s", u.HealthyWithin.Std())
}

func (c *checker) instanceTask(task *api.TaskSpec) {
	const at = "instances.task"
	if task == nil {
		c.report(at, "is missing: say what each instance is, like {type: exec, payload: {command: [serve]}}")
		return
	}
	for name, given := range map[string]bool{"cluster": task.Cluster != "", "tenant": task.Tenant != "",
		"start_at": !task.StartAt.IsZero(), "expires_in": task.ExpiresIn != 0, "expires_at": !task.ExpiresAt.IsZero(),
		"retry":      task.Retry.MaxAttempts+task.Retry.MaxTransfers+len(task.Retry.NonRetryable) > 0,
		"stop_grace": task.StopGrace != nil, "disconnect_grace": task.DisconnectGrace != nil,
		"retry_safety": task.RetrySafety != "", "shard_key": task.ShardKey != "",
		"recovery":     task.Recovery != nil,
		"keep_running": task.KeepRunning} {
		c.check(!given, at+"."+name, "belongs to the job, or to none with instances: remove it here")
	}
	c.check(task.Timeout == 0 || c.definition.Type == api.JobSysbatch, at+".timeout",
		"belongs to a sysbatch job: instances of this one run until they are stopped")
	c.check(task.Place.IsZero(), at+".place", "is written instances.place: put it beside task")
	for name, to := range map[string]struct {
		given bool
		key   string
	}{
		"agent":                 {task.Agent != "", "agent"},
		"affinity":              {task.Affinity != "", "affinity"},
		"required_capabilities": {len(task.RequiredCapabilities) > 0, "capabilities"},
	} {
		c.check(!to.given, at+"."+name, "is written instances.place.%s", to.key)
	}
	if task.Type == "" {
		c.report(at+".type", "is missing: say what kind of work it is, like exec")
		return
	}
	c.payload(at, task)
	if len(c.problems) > 0 {
		return
	}
	spec := job.TaskOf(c.definition, &api.Instance{Name: "0"})
	spec.Timeout, spec.ExpiresIn, spec.Agent = task.Timeout, api.Duration(time.Hour), ""
	c.task(at, &spec, "")
}

// sharesPort warns of a fixed port that instances check and do not ask for: two of them on a host cannot both have it.
func sharesPort(d *api.JobDefinition) []string {
	if !d.HasInstances() || d.Instances.Health == nil {
		return nil
	}
	var port api.ServicePort
	switch h := d.Instances.Health; {
	case h.HTTP != nil:
		port = h.HTTP.Port
	case h.TCP != nil:
		port = h.TCP.Port
	}
	number, err := strconv.Atoi(string(port))
	if err != nil {
		return nil
	}
	if p := d.Instances.Place; p != nil {
		for _, asked := range p.Ports {
			if asked.Static == number {
				return nil
			}
		}
	}
	return []string{fmt.Sprintf("instances.health checks port %d, which no more than one instance of a host can have: "+
		"write instances.place: {ports: {http: {static: %d}}}, so that they are placed so, and with update also order: "+
		"stop_first",
		number, number)}
}
