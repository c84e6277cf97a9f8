package flow

import (
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// payload checks a task's payload, if its type is one of ours, as far as it is known before its expressions are
// evaluated. Numbers, true and false become the text that is written where only text fits.
func (c *checker) payload(at string, task *api.TaskSpec) {
	const field = "payload"
	taken, problems := payload.Template(task.Type, field, task.Payload)
	for _, p := range problems {
		c.report(at+"."+p.Field, "%s", p.What)
	}
	if wrong := payload.Routes(task.Type, task.Routes, task.Payload); wrong != "" {
		c.report(at+".routes", "%s", wrong)
	}
	if len(taken) == 0 || len(problems) > 0 {
		return
	}
	for i := range taken {
		taken[i] = at + "." + taken[i]
	}
	if written, ok := c.places.JSON(at+"."+field, taken); ok {
		task.Payload = written
	}
}
