package flow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/sdk/api"
)

// toolName is the form of a tool's name and a call's id that providers accept.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// maxArgumentsDepth is how deep the arguments of a call may be nested.
const maxArgumentsDepth = 64

// tools checks the tools of a step.
func (c *checker) tools(id string, s *api.Step) {
	at := "steps." + id
	if len(s.Tools) == 0 {
		c.check(s.Turns == 0, at+".max_turns", "belongs to a step with tools: add these, or remove this")
		return
	}
	c.check(s.Task.Type == api.ModelTask, at+".tools",
		"belongs to a step whose task has the type %s: write that, or remove them", api.ModelTask)
	c.check(s.ForEach == nil, at+".tools", "belongs to a step without for_each: remove one of them")
	c.check(len(s.Tools) <= job.MaxTools, at+".tools", "has %d tools, and at most %d are allowed: leave out those that "+
		"the model needs least", len(s.Tools), job.MaxTools)
	for i, t := range s.Tools {
		field := fmt.Sprintf("%s.tools[%d]", at, i)
		if c.check(t.Server != "", field+".server", "is missing: name the server that has the tool, as agents name it") {
			c.invalid(field+".server", cmp.Or(api.ValidateID("server", t.Server),
				api.ValidateID("server", api.ToolCapability(t.Server))))
		}
		c.check(toolName.MatchString(t.Name), field+".name",
			"must be 1 to 64 letters, digits, _ and -: providers of models take no other names")
		c.check(!slices.ContainsFunc(s.Tools[:i], func(other api.StepTool) bool { return other.Name == t.Name }),
			field+".name", "is that of two tools, and the model tells them apart by it: remove one")
		c.check(len(t.Description) <= 1000, field+".description", "is longer than 1000 bytes: shorten it")
		c.safety(field+".safety", t.Safety)
		_, _, err := compileSchema(t.Arguments)
		c.check(err == nil, field+".arguments", "is not a valid JSON Schema: %v", err)
	}
}

// Calls are the first that a model asks for in its answer, with names and ids that providers take: those of a model may
// be anything.
func Calls(result json.RawMessage) []api.ToolCall {
	calls := mesh.ReadAnswer(result).ToolCalls
	calls = calls[:min(job.MaxCalls, len(calls))]
	ids := map[string]bool{}
	for i := range calls {
		if toolName.MatchString(calls[i].ID) {
			ids[calls[i].ID] = true
		}
		if !toolName.MatchString(calls[i].Name) {
			calls[i].Name = "unnamed"
		}
	}
	if len(ids) < len(calls) {
		for i := range calls {
			calls[i].ID = fmt.Sprintf("call-%d", i)
		}
	}
	return calls
}

// Call is the task of a call that a model asks for. refused says, for the model, why it is not made.
func Call(
	ctx context.Context, p *job.Plan, s *job.PlannedStep, call *api.ToolCall,
) (task *api.TaskSpec, refused string) {
	i := slices.IndexFunc(s.Tools, func(t api.StepTool) bool { return t.Name == call.Name })
	switch arguments := bytes.TrimSpace(call.Arguments); {
	case i < 0:
		names := make([]string, len(s.Tools))
		for i := range s.Tools {
			names[i] = s.Tools[i].Name
		}
		return nil, "there is no such tool; there are " + strings.Join(names, ", ")
	case !bytes.HasPrefix(arguments, []byte("{")) || api.CheckJSONDepth(arguments, maxArgumentsDepth) != nil:
		return nil, fmt.Sprintf("it was not called: the arguments must be a JSON object of at most %d levels",
			maxArgumentsDepth)
	}
	if err := validate(ctx, s.Tools[i].Arguments, call.Arguments); err != nil {
		return nil, "it was not called: the arguments are not valid: " + strings.Join(schemaErrors(err), "; ")
	}
	payload, err := json.Marshal(map[string]any{"server": s.Tools[i].Server, "tool": call.Name,
		"arguments": call.Arguments})
	if task = p.ToolTask(s, call.Name); err == nil {
		task.Payload = payload
		err = task.Validate()
	}
	if err != nil {
		return nil, "it was not called: " + err.Error()
	}
	return task, ""
}
