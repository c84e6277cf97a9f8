package gateway_test

import (
	"context"
	"strconv"
	"strings"

	schedulepb "go.temporal.io/api/schedule/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/internal/contract"
)

// fakeSchedules are the schedules of the fake Temporal, under its lock.
type fakeSchedules struct {
	byID    map[string]*workflowservice.DescribeScheduleResponse
	patches []*schedulepb.SchedulePatch
	query   string // of the newest list
	noCount error  // answers CountSchedules when set
}

func (s fakeService) schedule(id string) (*workflowservice.DescribeScheduleResponse, error) {
	if s.f.fail != nil {
		return nil, s.f.fail
	}
	if d := s.f.schedules.byID[id]; d != nil {
		return d, nil
	}
	return nil, serviceerror.NewNotFound("canary: no such schedule")
}

func (s fakeService) CreateSchedule(
	_ context.Context, r *workflowservice.CreateScheduleRequest, _ ...grpc.CallOption,
) (*workflowservice.CreateScheduleResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.f.fail != nil {
		return nil, s.f.fail
	}
	if s.f.schedules.byID[r.GetScheduleId()] != nil {
		return nil, serviceerror.NewWorkflowExecutionAlreadyStarted("canary: exists", "", "")
	}
	if s.f.schedules.byID == nil {
		s.f.schedules.byID = map[string]*workflowservice.DescribeScheduleResponse{}
	}
	s.f.schedules.byID[r.GetScheduleId()] = &workflowservice.DescribeScheduleResponse{
		Schedule:         r.GetSchedule(),
		Info:             &schedulepb.ScheduleInfo{CreateTime: timestamppb.Now()},
		SearchAttributes: r.GetSearchAttributes(),
		ConflictToken:    []byte("1"),
	}
	return &workflowservice.CreateScheduleResponse{}, nil
}

func (s fakeService) DescribeSchedule(
	_ context.Context, r *workflowservice.DescribeScheduleRequest, _ ...grpc.CallOption,
) (*workflowservice.DescribeScheduleResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	d, err := s.schedule(r.GetScheduleId())
	if err != nil {
		return nil, err
	}
	return proto.Clone(d).(*workflowservice.DescribeScheduleResponse), nil
}

func (s fakeService) UpdateSchedule(
	_ context.Context, r *workflowservice.UpdateScheduleRequest, _ ...grpc.CallOption,
) (*workflowservice.UpdateScheduleResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	d, err := s.schedule(r.GetScheduleId())
	if err != nil {
		return nil, err
	}
	if string(r.GetConflictToken()) != string(d.GetConflictToken()) {
		return nil, serviceerror.NewFailedPrecondition("canary: mismatched conflict token")
	}
	n, _ := strconv.Atoi(string(d.GetConflictToken()))
	d.Schedule, d.ConflictToken = r.GetSchedule(), []byte(strconv.Itoa(n+1))
	if r.GetSearchAttributes() != nil {
		d.SearchAttributes = r.GetSearchAttributes()
	}
	return &workflowservice.UpdateScheduleResponse{}, nil
}

func (s fakeService) PatchSchedule(
	_ context.Context, r *workflowservice.PatchScheduleRequest, _ ...grpc.CallOption,
) (*workflowservice.PatchScheduleResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	d, err := s.schedule(r.GetScheduleId())
	if err != nil {
		return nil, err
	}
	patch := r.GetPatch()
	s.f.schedules.patches = append(s.f.schedules.patches, patch)
	if note := patch.GetPause() + patch.GetUnpause(); note != "" {
		d.Schedule.State.Paused, d.Schedule.State.Notes = patch.GetPause() != "", note
	}
	return &workflowservice.PatchScheduleResponse{}, nil
}

func (s fakeService) DeleteSchedule(
	_ context.Context, r *workflowservice.DeleteScheduleRequest, _ ...grpc.CallOption,
) (*workflowservice.DeleteScheduleResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	_, err := s.schedule(r.GetScheduleId())
	delete(s.f.schedules.byID, r.GetScheduleId())
	return &workflowservice.DeleteScheduleResponse{}, err
}

func (s fakeService) ListSchedules(
	_ context.Context, r *workflowservice.ListSchedulesRequest, _ ...grpc.CallOption,
) (*workflowservice.ListSchedulesResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.schedules.query = r.GetQuery()
	if r.GetNextPageToken() != nil {
		return &workflowservice.ListSchedulesResponse{}, nil
	}
	answer := &workflowservice.ListSchedulesResponse{NextPageToken: []byte("more")}
	for id, d := range s.f.schedules.byID {
		tenant := contract.Keyword(d.GetSearchAttributes().GetIndexedFields(), contract.AttrTenant)
		if strings.Contains(r.GetQuery(), contract.AttrTenant.GetName()) &&
			!strings.Contains(r.GetQuery(), contract.Equals(contract.AttrTenant.GetName(), tenant)) &&
			(tenant != "" || !strings.Contains(r.GetQuery(), contract.AttrTenant.GetName()+" IS NULL")) {
			continue
		}
		answer.Schedules = append(answer.Schedules, &schedulepb.ScheduleListEntry{
			ScheduleId: id, SearchAttributes: d.GetSearchAttributes(),
			Info: &schedulepb.ScheduleListInfo{Spec: d.GetSchedule().GetSpec(),
				Notes:         d.GetSchedule().GetState().GetNotes(),
				Paused:        d.GetSchedule().GetState().GetPaused(),
				RecentActions: d.GetInfo().GetRecentActions()},
		})
	}
	return answer, nil
}

// CountSchedules counts all, whatever the query, unless the test has set count.
func (s fakeService) CountSchedules(
	_ context.Context, r *workflowservice.CountSchedulesRequest, _ ...grpc.CallOption,
) (*workflowservice.CountSchedulesResponse, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	answer := &workflowservice.CountSchedulesResponse{Count: int64(len(s.f.schedules.byID))}
	if s.f.count != nil {
		answer.Count = s.f.count(r.GetQuery())
	}
	return answer, s.f.schedules.noCount
}
