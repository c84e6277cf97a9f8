package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	schedulepb "go.temporal.io/api/schedule/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/durationpb"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/schedule"
	"mainstay.dev/sdk/api"
)

// Jobs are the jobs of a namespace. One that was deleted is not found.
type Jobs struct{ Store }

// Jobs are the namespace's.
func (s Store) Jobs() Jobs { return Jobs{s} }

// Schedule makes Temporal start a run of a plan at the times of the job's nth trigger.
func (s Jobs) Schedule(ctx context.Context, p *job.Plan, n int, t *api.ScheduleTrigger, paused bool) error {
	in := &contract.RunInput{Plan: *p, Inputs: t.Inputs, Origin: api.RunOrigin{Schedule: true}}
	input, err := contract.Payloads.ToPayloads(in)
	if err != nil {
		return fmt.Errorf("encode a run: %w", err)
	}
	start := contract.StartOfRun("", in, 0)
	summary, err := contract.Payloads.ToPayload(start.Summary)
	if err != nil {
		return fmt.Errorf("encode a summary: %w", err)
	}
	attributes := &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{}}
	for key, value := range start.Attributes.GetUntypedValues() {
		if attributes.IndexedFields[key.GetName()], err = contract.Payloads.ToPayload(value); err != nil {
			return fmt.Errorf("encode the search attribute %s: %w", key.GetName(), err)
		}
	}
	memo := &commonpb.Memo{Fields: map[string]*commonpb.Payload{}}
	for name, value := range start.Memo {
		if memo.Fields[name], err = contract.Payloads.ToPayload(value); err != nil {
			return fmt.Errorf("encode the memo %s: %w", name, err)
		}
	}
	overlap := enumspb.SCHEDULE_OVERLAP_POLICY_ALLOW_ALL // the job's concurrency bounds its runs
	if p.Concurrency == nil && schedule.StartsAMinute(t.Cron, t.Interval) > 1 {
		overlap = enumspb.SCHEDULE_OVERLAP_POLICY_SKIP // nothing bounds them, and they would soon be many
	}
	spec := ScheduleSpec(&api.ScheduleTimes{Cron: t.Cron, TimeZone: t.TimeZone, Interval: t.Interval}, time.Now())
	if err := s.Spread(ctx, p.Tenant, spec); err != nil {
		return fmt.Errorf("count the schedules of a tenant: %w", err)
	}
	return s.KeepSchedule(ctx, contract.JobScheduleID(p.Job, n), &schedulepb.Schedule{
		Spec: spec,
		Action: &schedulepb.ScheduleAction{
			Action: &schedulepb.ScheduleAction_StartWorkflow{StartWorkflow: &workflowpb.NewWorkflowExecutionInfo{
				WorkflowId:       contract.ScheduledRunWorkflowID(p.Job, n),
				WorkflowType:     &commonpb.WorkflowType{Name: contract.RunWorkflow},
				TaskQueue:        &taskqueuepb.TaskQueue{Name: contract.WorkerQueue},
				Input:            input,
				Memo:             memo,
				SearchAttributes: attributes,
				UserMetadata:     &sdkpb.UserMetadata{Summary: summary},
				Priority: &commonpb.Priority{PriorityKey: int32(start.Priority.PriorityKey),
					FairnessKey: start.Priority.FairnessKey},
			}}},
		Policies: &schedulepb.SchedulePolicies{
			OverlapPolicy: overlap,
			CatchupWindow: durationpb.New(schedule.CatchupWindow(t.Cron, t.Interval)),
		},
		State: &schedulepb.ScheduleState{Paused: paused, Notes: "starts runs of job " + p.Job},
	}, attributes)
}

// Get asks a job's workflow for the job.
func (s Jobs) Get(ctx context.Context, name string) (j job.Job, err error) {
	answer, err := s.ask(ctx, contract.JobWorkflowID(name), contract.JobQuery.Name, "the job was deleted")
	if err != nil {
		return j, err
	}
	if err = answer.Get(&j); err == nil && j.Version == 0 {
		err = serviceerror.NewNotFound("the job has no definition yet")
	}
	return j, err
}

// JobsQuery finds the jobs that there are.
var JobsQuery = contract.Equals("WorkflowType", contract.JobWorkflow) + " AND " +
	contract.Equals("ExecutionStatus", "Running")

// Apply gives a job a definition. The first starts its workflow, if room has no error.
func (s Jobs) Apply(
	ctx context.Context, name string, in contract.ApplyJob, room func(tenant string) error,
) (job.Job, error) {
	id := contract.JobWorkflowID(name)
	j, err := Update(ctx, s.Store, contract.ApplyJobUpdate, id, in)
	if KindOf(err) != NotFound || in.Expected > 0 {
		return j, err
	}
	tenant, plain := api.CutTenant(name)
	if err := room(tenant); err != nil {
		return j, err
	}
	_, err = s.Start(ctx, &Start{Type: contract.JobWorkflow, ID: id, Summary: "job " + name, Job: plain,
		Cluster: in.Definition.Cluster, Tenant: tenant, Join: true}, contract.JobInput{Name: name})
	if err != nil && KindOf(err) != Exists {
		return j, err
	}
	return Update(ctx, s.Store, contract.ApplyJobUpdate, id, in)
}

// Page is one page of the jobs that a visibility query finds, and the token of the next.
func (s Jobs) Page(
	ctx context.Context, query string, size int, token []byte,
) (jobs []api.JobEntry, next []byte, err error) {
	infos, next, err := s.Store.Page(ctx, query, size, token)
	for _, info := range infos {
		var note contract.JobNote
		name, ok := contract.JobOfWorkflowID(info.GetExecution().GetWorkflowId())
		if !ok || !contract.Decode(info.GetMemo().GetFields()[contract.MemoJob], &note) {
			continue // it has just been started
		}
		attributes := info.GetSearchAttributes().GetIndexedFields()
		jobs = append(jobs, api.JobEntry{
			Name: name, Type: cmp.Or(note.Type, api.JobBatch), Version: note.Version, Steps: note.Steps,
			Schedules:   note.Schedules,
			Unscheduled: note.Unscheduled,
			Events:      note.Events,
			Paused:      note.Paused,
			Stopped:     note.Stopped,
			Count:       note.Count,
			Deployment:  note.Deployment,
			Service:     note.Service,
			Cluster:     contract.Keyword(attributes, contract.AttrCluster),
			Tenant:      contract.Keyword(attributes, contract.AttrTenant),
			CreatedAt:   TimeOf(info.GetStartTime()),
		})
	}
	return jobs, next, err
}

// unmetPage is how many jobs are listed at a time.
const unmetPage = 500

// Unmet are the services without a healthy instance of any job of the tenant.
func (s Jobs) Unmet(ctx context.Context, tenant string, services []string) ([]string, error) {
	query := JobsQuery
	if tenant != "" {
		query += " AND " + contract.Equals(contract.AttrTenant.GetName(), tenant)
	}
	unmet := slices.Clone(services)
	for token, more := []byte(nil), true; more && len(unmet) > 0; more = len(token) > 0 {
		jobs, next, err := s.Page(ctx, query, unmetPage, token)
		if err != nil {
			return nil, err
		}
		token = next
		for i := range jobs {
			at := slices.Index(unmet, jobs[i].Service)
			if at < 0 || jobs[i].Tenant != tenant || jobs[i].Stopped {
				continue
			}
			j, err := s.Get(ctx, jobs[i].Name)
			if err != nil && KindOf(err) != NotFound {
				return nil, err
			}
			if err == nil && j.Passing() > 0 {
				unmet = slices.Delete(unmet, at, at+1)
			}
		}
	}
	return unmet, nil
}
