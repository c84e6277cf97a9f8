package array

import (
	"errors"

	"go.temporal.io/sdk/workflow"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/workflows"
)

// handle answers queries, and lets people act on the array.
func (c *carrier) handle(ctx workflow.Context) error {
	update := func(ctx workflow.Context, r contract.ArrayRequest) (contract.ArrayState, error) {
		if r.Action == contract.ResumeArray {
			c.state.Resume(workflow.Now(ctx))
		}
		c.act(&r)
		return c.view(), nil
	}
	inbox := contract.ArraySignal.Inbox(ctx)
	workflow.Go(ctx, func(ctx workflow.Context) {
		for workflow.Await(ctx, func() bool { return inbox.Len() > 0 }) == nil {
			inbox.Take(func(r contract.ArrayRequest) {
				if c.mayAct(r) == nil {
					_, _ = update(ctx, r)
				}
			})
		}
	})
	return errors.Join(
		contract.ArrayQuery.Handle(ctx, c.view),
		contract.ElementsQuery.Handle(ctx, c.elements),
		contract.ArrayUpdate.Handle(ctx, update, c.mayAct))
}

// mayAct refuses what is not possible in the present state.
func (c *carrier) mayAct(r contract.ArrayRequest) error {
	switch {
	case c.final != "":
		return workflows.Refuse("the array has ended: it is %s", c.final)
	case c.cancel != nil:
		return workflows.Refuse("the array is being cancelled")
	}
	switch r.Action {
	case contract.PauseArray:
		if c.paused != nil {
			return workflows.Refuse("the array is paused")
		}
	case contract.ResumeArray:
		if c.paused == nil {
			return workflows.Refuse("the array is not paused")
		}
	case contract.RetryArray:
		if c.state.Stopped != "" {
			return workflows.Refuse("the array is ending: %s", c.state.Stopped)
		}
		if err := c.state.MayRetry(r.Elements); err != nil {
			return workflows.Refuse("%s", err)
		}
	case contract.ReprioritizeArray:
		if !r.Priority.Valid() {
			return workflows.Refuse("%s", fleet.ErrPriority)
		}
	case contract.CancelArray:
	default:
		return workflows.Refuse("there is no such action")
	}
	return nil
}

// act does what mayAct has found possible.
func (c *carrier) act(r *contract.ArrayRequest) {
	switch r.Action {
	case contract.PauseArray:
		c.paused = r
	case contract.ResumeArray:
		c.paused = nil
	case contract.RetryArray:
		c.state.Retry(r.Elements)
	case contract.ReprioritizeArray:
		c.priority = r.Priority
	case contract.CancelArray:
		c.cancelled(r)
	}
	c.changed = true
}
