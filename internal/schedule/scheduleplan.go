package schedule

import (
	"mainstay.dev/sdk/api"
)

// PlanOf is the times as fleet checks and counts them.
func PlanOf(t *api.ScheduleTimes) *SchedulePlan {
	plan := &SchedulePlan{Cron: t.Cron, TimeZone: t.TimeZone, Interval: t.Interval, Offset: t.Offset,
		Overlap: t.Overlap, CatchupWindow: t.CatchupWindow, Jitter: t.Jitter}
	if t.StartAt != nil {
		plan.StartAt = *t.StartAt
	}
	if t.EndAt != nil {
		plan.EndAt = *t.EndAt
	}
	return plan
}
