// Package task is the Task workflow: it delivers one task to agents until it has ended.
package task

import (
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/workflows"
	"mainstay.dev/mainstay/workflows/delivery"
	"mainstay.dev/sdk/api"
)

// Workflow delivers one task. A completed task returns its state. Any other end is the workflow's failure (or
// cancellation) with the state as its detail, so that the Web UI shows it.
func Workflow(ctx workflow.Context, in contract.TaskInput) (contract.TaskState, error) {
	c := &carrier{}
	if in.Carried != nil {
		set := workflow.GetTypedSearchAttributes(ctx)
		marked, _ := set.GetKeyword(contract.AttrStatus)
		c.marked = api.TaskStatus(marked)
		c.ranOn, _ = set.GetKeywordList(contract.AttrRanOn)
		c.told = in.Carried.Told
	}
	c.Delivery = delivery.New(in, workflow.GetInfo(ctx).WorkflowStartTime, c)
	err := errors.Join(
		contract.StatusQuery.Handle(ctx, c.State),
		delivery.Handle(ctx, func(string) *delivery.Delivery { return c.Delivery }, &workflows.Changes{}))
	switch {
	case err != nil:
		return contract.TaskState{}, err
	case !c.Run(ctx):
		next := c.Task()
		next.Carried.Told = c.told
		return contract.TaskState{}, workflow.NewContinueAsNewError(ctx, contract.TaskWorkflow, next)
	}
	c.reportEnd(ctx)
	c.tellEvent(ctx)
	return c.end(ctx)
}

// reportEnd reports the end of an instance to its job, before the workflow closes: a signal whose sender has closed is
// dropped. The job may be gone.
func (c *carrier) reportEnd(ctx workflow.Context) {
	instance := c.Task().Instance
	if instance == nil {
		return
	}
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	state := c.State()
	reported := contract.InstanceEndedSignal.SendFrom(ctx, contract.JobWorkflowID(instance.Job), "",
		contract.InstanceEnded{Task: c.Task().TaskID, Status: state.Status, Why: state.Why,
			GoesOnUntil: c.Task().Carried.GoesOnUntil})
	if err := reported.Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Info("The instance's job did not learn of its end", "error", err)
	}
}

// tellEvent reports to the event that started the task, if one did, that it has died, or that it lives or is given up
// after all.
func (c *carrier) tellEvent(ctx workflow.Context) {
	task, state := c.Task(), c.State()
	dead := state.Status == api.TaskDeadLetter || !c.GivenUp() &&
		(state.Status == api.TaskFailed || state.Status == api.TaskExpired)
	if task.Event == "" || !dead && !c.told {
		return
	}
	outcome := contract.EventOutcome{Event: task.Event, ID: task.TaskID, Cluster: task.Spec.Cluster}
	if c.told = dead; dead {
		outcome.Died = string(state.Status) + ": " + state.Why
	}
	workflows.TellEvent(ctx, outcome)
}

// carrier carries its one task.
type carrier struct {
	*delivery.Delivery
	marked api.TaskStatus // the status search attribute as last set
	ranOn  []string       // the search attribute AttrRanOn as last set
	told   bool           // the event that started the task knows that it died
}

// end closes the workflow as the task ended. Only a completed task returns normally.
func (c *carrier) end(ctx workflow.Context) (contract.TaskState, error) {
	state := c.State()
	switch state.Status {
	case api.TaskCompleted:
		c.Mark(ctx, "")
		return state, nil
	case api.TaskCancelled:
		c.Mark(ctx, "")
		return contract.TaskState{}, temporal.NewCanceledError(state)
	}
	c.Mark(ctx, state.Status)
	return contract.TaskState{}, temporal.NewApplicationErrorWithOptions(
		fmt.Sprintf("task %s: %s", state.Status, state.Why), string(state.Status),
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{state}})
}

// Mark sets the search attributes for statuses that the execution status does not show, with the time, so that readers
// of events find the change; "" removes them. In the same event it sets which agents had the task, if that has changed.
func (c *carrier) Mark(ctx workflow.Context, status api.TaskStatus) {
	var updates []temporal.SearchAttributeUpdate
	if c.marked != status {
		update, at := contract.AttrStatus.ValueUnset(), contract.AttrStatusAt.ValueSet(workflow.Now(ctx))
		switch {
		case status != "":
			update = contract.AttrStatus.ValueSet(string(status))
		case c.marked == contract.TaskUnhandled:
			at = contract.AttrStatusAt.ValueUnset() // its hub publishes that an agent has it
		}
		c.marked = status
		updates = append(updates, update, at)
	}
	if agents := c.agents(); !slices.Equal(agents, c.ranOn) {
		c.ranOn = agents
		updates = append(updates, contract.AttrRanOn.ValueSet(agents))
	}
	if len(updates) == 0 {
		return
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		workflow.GetLogger(ctx).Warn("The search attributes were not set", "error", err)
	}
}

// agentsKept bounds AttrRanOn.
const agentsKept = 32

// agents are those that had the task, the last one last.
func (c *carrier) agents() []string {
	agents := slices.Clone(c.ranOn)
	for _, a := range c.State().Attempts {
		if a.AgentID != "" && a.Outcome != api.AttemptReturned {
			agents = append(slices.DeleteFunc(agents, func(id string) bool { return id == a.AgentID }), a.AgentID)
		}
	}
	return agents[max(0, len(agents)-agentsKept):]
}

// Note sets a field of the workflow's memo, which lists show.
func (c *carrier) Note(ctx workflow.Context, field string, value any) {
	if err := workflow.UpsertMemo(ctx, map[string]any{field: value}); err != nil {
		workflow.GetLogger(ctx).Warn("The memo was not set", "field", field, "error", err)
	}
}

// Held reports to the schedule's firing that made the task, if any, that the task waits for a person. The firing may
// have ended. A dead letter is reported to the event that started it.
func (c *carrier) Held(ctx workflow.Context) {
	if c.State().Status == api.TaskDeadLetter {
		c.tellEvent(ctx)
	}
	parent := workflow.GetInfo(ctx).ParentWorkflowExecution
	if parent == nil {
		return
	}
	if _, _, ok := contract.FiringOfWorkflowID(parent.ID); ok {
		state := c.State()
		contract.SettledSignal.SendFrom(ctx, parent.ID, parent.RunID,
			contract.TaskSettled{Status: state.Status, Why: state.Why})
	}
}

// KeepsDeadLetters is true: a dead letter waits for a retry until its retention ends.
func (c *carrier) KeepsDeadLetters() bool { return true }

// Yield continues as new when Temporal suggests it and nobody waits for an answer.
func (c *carrier) Yield(ctx workflow.Context) bool {
	return workflow.GetInfo(ctx).GetContinueAsNewSuggested() && workflow.AllHandlersFinished(ctx)
}
