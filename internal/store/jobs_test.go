package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	schedulepb "go.temporal.io/api/schedule/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

type schedules struct {
	client.Client
	service *scheduler
}

func (s schedules) WorkflowService() workflowservice.WorkflowServiceClient { return s.service }

// scheduler keeps the newest schedule that was made, and says that there are so many.
type scheduler struct {
	workflowservice.WorkflowServiceClient
	made  *schedulepb.Schedule
	count int64
}

func (s *scheduler) CountSchedules(
	context.Context, *workflowservice.CountSchedulesRequest, ...grpc.CallOption,
) (*workflowservice.CountSchedulesResponse, error) {
	return &workflowservice.CountSchedulesResponse{Count: s.count}, nil
}

func (s *scheduler) CreateSchedule(
	_ context.Context, r *workflowservice.CreateScheduleRequest, _ ...grpc.CallOption,
) (*workflowservice.CreateScheduleResponse, error) {
	s.made = r.GetSchedule()
	return &workflowservice.CreateScheduleResponse{}, nil
}

// TestRunsOfFastSchedulesDoNotPileUp makes schedules of jobs that have no concurrency, and of one that has.
func TestRunsOfFastSchedulesDoNotPileUp(t *testing.T) {
	t.Parallel()
	for interval, want := range map[time.Duration]struct {
		overlap enumspb.ScheduleOverlapPolicy
		catchUp time.Duration
	}{
		time.Second:      {enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, time.Minute},
		59 * time.Second: {enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, 590 * time.Second},
		time.Minute:      {enumspb.SCHEDULE_OVERLAP_POLICY_ALLOW_ALL, 10 * time.Minute},
		24 * time.Hour:   {enumspb.SCHEDULE_OVERLAP_POLICY_ALLOW_ALL, time.Hour},
	} {
		s, trigger := &scheduler{}, &api.ScheduleTrigger{Interval: api.Duration(interval)}
		jobs := store.Store{Client: schedules{service: s}}.Jobs()
		require.NoError(t, jobs.Schedule(t.Context(), &job.Plan{Job: "tick", Cluster: "c"}, 0, trigger, false))
		require.Equal(t, want.overlap, s.made.GetPolicies().GetOverlapPolicy(), interval)
		require.InDelta(t, want.catchUp, s.made.GetPolicies().GetCatchupWindow().AsDuration(), 10)
		require.NoError(t, jobs.Schedule(t.Context(), &job.Plan{Job: "tick", Cluster: "c",
			Concurrency: &api.Concurrency{MaxRuns: 3}}, 0, trigger, false))
		require.Equal(t, enumspb.SCHEDULE_OVERLAP_POLICY_ALLOW_ALL, s.made.GetPolicies().GetOverlapPolicy(), interval)
		require.Zero(t, s.made.GetSpec().GetJitter().AsDuration())
	}
}

func TestManySchedulesOfJobsAreSpread(t *testing.T) {
	t.Parallel()
	s := &scheduler{count: 800}
	require.NoError(t, store.Store{Client: schedules{service: s}}.Jobs().Schedule(t.Context(),
		&job.Plan{Job: "tick", Cluster: "c"}, 0, &api.ScheduleTrigger{Cron: "0 3 * * *"}, false))
	require.Equal(t, 50*time.Second, s.made.GetSpec().GetJitter().AsDuration())
}
