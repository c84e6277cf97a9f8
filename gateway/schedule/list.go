package schedule

import (
	"context"

	schedulepb "go.temporal.io/api/schedule/v1"
	"go.temporal.io/api/workflowservice/v1"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

func (h *Handlers) listSchedules(ctx context.Context, in *listSchedulesInput) (*listSchedulesOutput, error) {
	var err error
	if in.Tenant, err = rest.OwnTenant(ctx, in.Tenant); err != nil {
		return nil, err
	}
	query := scheduleQuery(in)
	token, err := rest.OpenToken(query, in.PageToken)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	page, err := h.Store.Client.WorkflowService().ListSchedules(ctx, &workflowservice.ListSchedulesRequest{
		Namespace: h.Store.Namespace, MaximumPageSize: int32(in.PageSize), NextPageToken: token, Query: query,
	})
	if err != nil {
		return nil, h.Answer(err, "list schedules", protocol.CodeNotFound)
	}
	out := &listSchedulesOutput{}
	out.Body.Schedules = make([]api.ScheduleEntry, 0, len(page.GetSchedules()))
	for _, entry := range page.GetSchedules() {
		if name, ours := contract.ScheduleOfID(entry.GetScheduleId()); ours {
			out.Body.Schedules = append(out.Body.Schedules, scheduleEntry(name, entry))
		}
	}
	out.Body.NextPageToken = rest.SealToken(query, page.GetNextPageToken())
	return out, nil
}

// scheduleQuery finds Mainstay's schedules: each has the type of its tasks as a search attribute.
func scheduleQuery(in *listSchedulesInput) string {
	return rest.AllOf(contract.AttrTaskType.GetName()+" IS NOT NULL",
		rest.Filter(contract.AttrCluster.GetName(), in.Cluster), rest.Filter(contract.AttrTaskType.GetName(), in.Type),
		rest.Filter(contract.AttrTenant.GetName(), in.Tenant))
}

func scheduleEntry(name string, entry *schedulepb.ScheduleListEntry) api.ScheduleEntry {
	info, fields := entry.GetInfo(), entry.GetSearchAttributes().GetIndexedFields()
	times := timesOf(info.GetSpec())
	e := api.ScheduleEntry{
		Name:     name,
		Cron:     times.Cron,
		TimeZone: times.TimeZone,
		Interval: times.Interval,
		Paused:   info.GetPaused(),
		Note:     info.GetNotes(),
		Type:     contract.Keyword(fields, contract.AttrTaskType),
		Cluster:  contract.Keyword(fields, contract.AttrCluster),
		Tenant:   contract.Keyword(fields, contract.AttrTenant),
	}
	if next := info.GetFutureActionTimes(); len(next) > 0 && !e.Paused {
		e.NextTime = store.TimeOf(next[0])
	}
	if recent := info.GetRecentActions(); len(recent) > 0 {
		last := recent[len(recent)-1]
		e.LastTime = store.TimeOf(last.GetActualTime())
		if schedule, at, ok := contract.FiringOfWorkflowID(last.GetStartWorkflowResult().GetWorkflowId()); ok {
			e.LastTask = contract.FiringTaskID(schedule, at)
		}
	}
	return e
}
