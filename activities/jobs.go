package activities

import (
	"context"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/store"
)

// EndedRuns returns those of the runs that have ended.
func (a *Control) EndedRuns(ctx context.Context, runs []string) ([]string, error) {
	ended := []string{}
	for _, run := range runs {
		info, err := a.store().Describe(ctx, contract.RunWorkflowID(run))
		switch {
		case store.KindOf(err) == store.NotFound,
			err == nil && info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
			ended = append(ended, run)
		case err != nil:
			return nil, fmt.Errorf("describe run %s: %w", run, err)
		}
	}
	return ended, nil
}

// ScheduleJob makes the schedules of a job in Temporal as its definition has them: all that Temporal accepts, even if
// it refuses another.
func (a *Control) ScheduleJob(ctx context.Context, in contract.ScheduleJob) error {
	jobs, want := a.store().Jobs(), 0
	var failed []error
	if in.Definition != nil {
		schedules := in.Definition.Schedules()
		want = len(schedules)
		plan, err := flow.PlanOf(in.Name, in.Version, in.Definition)
		if err != nil {
			return temporal.NewNonRetryableApplicationError(fmt.Sprintf("the definition cannot be used: %s", err),
				contract.Refused, err)
		}
		for n, schedule := range schedules {
			plan, inputs, err := flow.Begin(flow.WithLimit(ctx), in.Definition, plan, schedule.Inputs)
			if err == nil {
				filled := *schedule
				filled.Inputs = inputs
				err = jobs.Schedule(ctx, plan, n, &filled, in.Paused)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("schedule %d of %d cannot be written: %w", n+1, want, err))
			}
		}
	}
	for n := want; n < in.Had; n++ {
		if err := jobs.DropSchedule(ctx, contract.JobScheduleID(in.Name, n)); err != nil {
			failed = append(failed, fmt.Errorf("schedule %d cannot be removed: %w", n+1, err))
		}
	}
	err := errors.Join(failed...)
	for _, f := range failed {
		if store.KindOf(f) == store.Invalid {
			return temporal.NewNonRetryableApplicationError(err.Error(), contract.Refused, err)
		}
	}
	return err
}
