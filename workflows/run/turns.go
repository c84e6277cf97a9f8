package run

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/sdk/api"
)

// talkFull is why a step fails whose conversation is too long.
var talkFull = fmt.Sprintf("its conversation has more than %d KiB: have its tools return less, or where large data is, "+
	"or lower max_turns", mesh.MaxTalkBytes>>10)

// say adds to the conversation of a step's model. It reports whether that has room.
func (r *run) say(step string, messages ...api.ModelMessage) (ok bool) {
	if r.talks == nil {
		r.talks = map[string]mesh.Talk{}
	}
	r.talks[step], ok = r.talks[step].Add(messages...)
	return ok
}

// call makes the calls of tools that a step's model asks for in its result. They begin when there is room.
func (r *run) call(ctx workflow.Context, s *job.PlannedStep, calls []contract.StepCall, result json.RawMessage) {
	e, now := r.ledger.Entry(s.ID), workflow.Now(ctx)
	answer := mesh.ReadAnswer(result)
	answer.ToolCalls = make([]api.ToolCall, len(calls))
	for i := range calls {
		answer.ToolCalls[i] = calls[i].ToolCall
	}
	if !r.say(s.ID, mesh.MessageOf(answer)) {
		job.FailEntry(e, s.OnFailure, talkFull, now)
		return
	}
	for i := range calls {
		c := &calls[i]
		if n := job.CallOf(e, r.id, c.Name, c.Refused, now); c.Refused == "" {
			w := &work{run: r, key: job.ElementKey(s.ID, n), step: s.ID, element: n}
			w.task = contract.TaskInput{TaskID: e.Elements[n].TaskID, Spec: c.Spec, Lane: c.Lane}
			r.open = append(r.open, w)
		}
	}
	r.timer(ctx, e)
	r.endElements(e, s, now)
}

// endElements ends a step when all of its elements have ended; with tools, its model is asked again.
func (r *run) endElements(e *api.StepEntry, s *job.PlannedStep, now time.Time) {
	if len(s.Tools) == 0 {
		job.EndElements(e, s, now)
		return
	}
	talk := r.talks[s.ID]
	failures, problem, done := job.TurnOf(e, len(talk.Calls()))
	if !done || len(failures) == 0 { // it is the model's turn
		return
	}
	results := make([]json.RawMessage, len(failures))
	for i := range results {
		key := job.ElementKey(s.ID, len(e.Elements)-len(results)+i)
		results[i] = r.results[key]
		delete(r.results, key)
	}
	talk, full := talk.Told(results, failures)
	if r.talks[s.ID] = talk; full && problem == "" {
		problem = talkFull
	}
	if problem != "" {
		job.FailEntry(e, s.OnFailure, problem, now)
		return
	}
	job.NextTurn(e)
	r.changed = true
}

// hear gives a step's model the words of a person who runs the step again. Its tools are not called again for that.
func (r *run) hear(s *job.PlannedStep, reason string) {
	if len(s.Tools) > 0 && reason != "" {
		r.say(s.ID, api.ModelMessage{Role: "user", Content: reason}) // without room for it, the model does without
	}
}

// takeTurn puts the results of the turns before into a model's task.
func (r *run) takeTurn(b *contract.BegunStep) {
	s := r.in.Plan.Step(b.Step)
	if len(s.Tools) == 0 || len(b.Tasks) == 0 {
		return
	}
	spec := &b.Tasks[0].Spec
	if spec.Payload = r.talks[s.ID].Into(spec.Payload, s.Tools); len(spec.Payload) > api.MaxPayloadBytes {
		b.Error = fmt.Sprintf("its conversation has more than %d MiB: begin it with less, or have its tools return less",
			api.MaxPayloadBytes>>20)
	}
}
