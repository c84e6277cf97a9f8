package schedule

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	schedulepb "go.temporal.io/api/schedule/v1"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/schedule"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// How many starts a minute schedules may have: those of one tenant together, and those without a tenant. By default
// Temporal starts 30 a second for all schedules: beyond that all are late, Mainstay's own too.
const (
	MaxTenantStarts = 600
	MaxStarts       = 1200
)

// How often a second schedules of one tenant are triggered, paused and resumed. Each trigger is a start as those above.
const (
	changeRate  = 5
	changeBurst = 50
)

const (
	// appears is how long a schedule counts as it was admitted. Lists show it a second after it was made, which a job's
	// workflow does in its own time: by them alone, many requests at once would all find room.
	appears = time.Minute
	// pageOfAll is how many schedules are listed at a time.
	pageOfAll = 500
)

// admissions are the schedules that were admitted lately, by their ids.
type admissions struct {
	mu   sync.Mutex
	byID map[string]admission
}

type admission struct {
	tenant string
	starts float64 // a minute
	at     time.Time
}

// RoomForJob is room for the schedules of a job.
func (h *Handlers) RoomForJob(ctx context.Context, name string, schedules []*api.ScheduleTrigger) error {
	wanted := make(map[string]float64, job.MaxTriggers)
	for n := range job.MaxTriggers { // it may have had more
		wanted[contract.JobScheduleID(name, n)] = 0
	}
	for n, s := range schedules {
		wanted[contract.JobScheduleID(name, n)] = schedule.StartsAMinute(s.Cron, s.Interval)
	}
	tenant, _ := api.CutTenant(name)
	return h.room(ctx, tenant, wanted)
}

// roomFor is room for a schedule. It delays the schedule's starts if the tenant has many schedules.
func (h *Handlers) roomFor(
	ctx context.Context, name string, r *api.ScheduleRequest, spec *schedulepb.ScheduleSpec,
) error {
	tenant, _ := api.CutTenant(name)
	err := h.room(ctx, tenant, map[string]float64{contract.ScheduleID(name): schedule.StartsAMinute(r.Cron,
		r.Interval)})
	if err != nil {
		return err
	}
	return h.Answer(h.Store.Spread(ctx, tenant, spec), "count schedules", protocol.CodeInternal)
}

// room refuses schedules when there are as many as there may be, or when the tenant's would start something too often.
// wanted has each one's starts a minute, by its id. It does not refuse schedules that start no more than before.
func (h *Handlers) room(ctx context.Context, tenant string, wanted map[string]float64) error {
	starts := sum(wanted)
	if starts == 0 {
		return nil
	}
	present, err := h.starts(ctx, tenant)
	if err != nil {
		return h.Answer(err, "list schedules", protocol.CodeInternal)
	}
	more := int64(0)
	for id, s := range wanted {
		if _, there := present[id]; s > 0 && !there {
			more++
		}
	}
	if more > 0 {
		err := h.Room(ctx, tenant, "schedules", func(ctx context.Context, query string) (int64, error) {
			n, err := h.Store.CountSchedules(ctx, query)
			return n + more - 1, err
		})
		if err != nil {
			return err
		}
	}
	return h.lately.admit(tenant, wanted, present, time.Now())
}

// starts are the starts a minute of each of a tenant's schedules, by its id. Paused ones count, since they may be
// resumed.
func (h *Handlers) starts(ctx context.Context, tenant string) (map[string]float64, error) {
	starts, query := map[string]float64{}, rest.AllOf(store.AllSchedules, contract.OfTenant(tenant))
	for token, more := []byte(nil), true; more; more = len(token) > 0 {
		page, next, err := rest.InTurn(h.Store.Schedules)(ctx, query, pageOfAll, token)
		if err != nil {
			return nil, err
		}
		for _, entry := range page {
			times := store.TimesOf(entry.GetInfo().GetSpec())
			starts[entry.GetScheduleId()] = schedule.StartsAMinute(times.Cron, times.Interval)
		}
		token = next
	}
	return starts, nil
}

// admit takes the wanted schedules of a tenant in, beside those that are present, unless all start too much.
func (a *admissions) admit(tenant string, wanted, present map[string]float64, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.byID, func(_ string, was admission) bool { return now.Sub(was.at) > appears })
	for id, was := range a.byID {
		if was.tenant == tenant {
			present[id] = max(present[id], was.starts)
		}
	}
	had, starts := 0.0, sum(wanted)
	for id := range wanted {
		had += present[id]
	}
	others := sum(present) - had
	most, whose := MaxTenantStarts, "of the tenant"
	if tenant == "" {
		most, whose = MaxStarts, "without a tenant"
	}
	if starts > had && starts+others > float64(most) {
		return httpapi.Problem(protocol.CodeConflict, fmt.Sprintf("the schedules %s, those of jobs included, may start "+
			"something %d times a minute together: these would %.0f times, and the others do %.0f times, as they are or "+
			"were a minute ago. Give them longer intervals, or delete those that are no longer needed",
			whose, most, math.Ceil(starts), math.Ceil(others)))
	}
	if a.byID == nil {
		a.byID = map[string]admission{}
	}
	for id, s := range wanted {
		if s > 0 { // of two changes at once it is not known which comes last
			a.byID[id] = admission{tenant: tenant, starts: max(s, a.byID[id].starts), at: now}
		}
	}
	return nil
}

// mayChange refuses one more trigger, pause or resumption of a schedule when there were many of its tenant's.
func (h *Handlers) mayChange(name string) error {
	tenant, _ := api.CutTenant(name)
	if wait := h.changes.Take(tenant, 1, time.Now()); wait > 0 {
		return httpapi.RetryAfter(wait, fmt.Sprintf("schedules of a tenant are triggered, paused and resumed %d times a "+
			"second together, and %d times at once: submit the tasks themselves, or a batch of them", changeRate, changeBurst))
	}
	return nil
}

func sum(starts map[string]float64) (all float64) {
	for _, s := range starts {
		all += s
	}
	return all
}
