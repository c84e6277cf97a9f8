package activities

import (
	"context"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/flow"
	"mainstay.dev/mainstay/store"
)

// EndedRuns tells which of some runs have ended.
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

// ScheduleJob makes the schedules of a job in Temporal as its definition has them.
func (a *Control) ScheduleJob(ctx context.Context, in contract.ScheduleJob) error {
	jobs, want := a.store().Jobs(), 0
	if in.Definition != nil {
		schedules := in.Definition.Schedules()
		want = len(schedules)
		plan, err := flow.PlanOf(in.Name, in.Version, in.Definition)
		if err != nil {
			return temporal.NewNonRetryableApplicationError("the definition cannot be used", contract.Refused, err)
		}
		for n, schedule := range schedules {
			filled := *schedule
			if filled.Inputs, err = flow.CheckInputs(ctx, in.Definition.Inputs, schedule.Inputs); err != nil {
				return temporal.NewNonRetryableApplicationError("the definition cannot be used", contract.Refused, err)
			}
			if err := jobs.Schedule(ctx, plan, n, &filled, in.Paused); err != nil {
				return fmt.Errorf("schedule %d of job %s: %w", n, in.Name, err)
			}
		}
	}
	for n := want; n < in.Had; n++ {
		if err := jobs.DropSchedule(ctx, contract.JobScheduleID(in.Name, n)); err != nil {
			return fmt.Errorf("drop schedule %d of job %s: %w", n, in.Name, err)
		}
	}
	return nil
}
