package rest

import (
	"context"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/diagnosis"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

const (
	// runFresh is how old what is known of a schedule may be in an overview: these are read often, and schedules seldom
	// change.
	runFresh = 5 * time.Second
	// runTimeout bounds reading one: the overview does not wait longer for it.
	runTimeout = time.Second
	// describePatience is how long a schedule is asked for again that cannot be told about right now.
	describePatience = 600 * time.Millisecond
)

// DescribeLoop describes the schedule of healing or scaling. For a moment after a schedule was paused, resumed or
// triggered Temporal cannot tell how it stands: it is asked again.
func (c *Core) DescribeLoop(ctx context.Context, id string) (*workflowservice.DescribeScheduleResponse, error) {
	var d *workflowservice.DescribeScheduleResponse
	err := c.WaitUntil(ctx, describePatience, "describe a schedule",
		func(ctx context.Context, last bool) (_ bool, err error) {
			d, err = c.Store.Client.WorkflowService().DescribeSchedule(ctx, &workflowservice.DescribeScheduleRequest{
				Namespace: c.Store.Namespace, ScheduleId: id,
			})
			if store.KindOf(err) == store.Unavailable && !last {
				return false, nil
			}
			return true, err
		})
	return d, err
}

// ForgetRun has the next request look at a schedule anew.
func (c *Core) ForgetRun(id string) { c.runs.forget(id) }

// ScheduleRun tells whether a schedule runs. That one is missing is not remembered: it is about to be made.
func (c *Core) ScheduleRun(ctx context.Context, id string) (diagnosis.ScheduleRun, error) {
	if run, known := c.runs.get(id); known {
		return run, nil
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	d, err := c.DescribeLoop(ctx, id)
	if store.KindOf(err) == store.NotFound {
		return diagnosis.ScheduleRun{Missing: true}, nil
	}
	if err != nil {
		return diagnosis.ScheduleRun{}, c.Answer(err, "describe a schedule", protocol.CodeInternal)
	}
	run := diagnosis.ScheduleRun{Paused: d.GetSchedule().GetState().GetPaused(),
		Note: d.GetSchedule().GetState().GetNotes()}
	if recent := d.GetInfo().GetRecentActions(); len(recent) > 0 {
		run.Last = recent[len(recent)-1].GetActualTime().AsTime()
	}
	c.runs.put(id, run)
	return run, nil
}
