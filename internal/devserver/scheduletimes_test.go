package devserver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/service/worker/scheduler"
	"google.golang.org/protobuf/proto"

	"mainstay.dev/mainstay/internal/schedule"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// TestTemporalFiresWhenSchedulesSay asks Temporal itself when it would fire a schedule as store writes it.
func TestTemporalFiresWhenSchedulesSay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 34, 56, 0, time.UTC)
	start, end := now.Add(10*time.Minute), now.AddDate(0, 7, 0)
	limit := dynamicconfig.GetIntPropertyFn(0)
	specs := scheduler.NewSpecBuilder(limit, limit)
	long := strings.Repeat("0,", 80) + "30 3 * * 5-7"
	schedules := []api.ScheduleTimes{
		{Interval: api.Duration(time.Hour)},
		{Interval: api.Duration(time.Hour), Offset: api.Duration(time.Minute), StartAt: &start},
		{Interval: api.Duration(time.Hour), StartAt: &start, EndAt: &end},
		{Interval: api.Duration(7 * time.Second), StartAt: new(now.Add(time.Millisecond))},
	}
	for _, zone := range []string{"", "UTC", "Europe/Berlin", "Europe/Dublin", "America/New_York", "America/Havana",
		"America/St_Johns", "America/Santiago", "Africa/Cairo", "Africa/Casablanca", "Asia/Beirut", "Asia/Kolkata",
		"Asia/Kathmandu", "Asia/Tehran", "Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Chatham", "Pacific/Apia"} {
		for _, cron := range []string{"30 2 * * *", "0 0 * * *", "*/30 * * * *", "*/7 0-3 * * sun", "15 9-17/4 * * mon-fri",
			"0 12 13 * fri", "0 0 1 1 *", "0 12 29 2 *", "30 1 29 2 */7", "0 0 */2 * 7", long} {
			schedules = append(schedules, api.ScheduleTimes{Cron: cron, TimeZone: zone})
		}
	}
	schedules = append(schedules,
		api.ScheduleTimes{Cron: "0 3 * * 7", TimeZone: "Europe/Berlin", StartAt: &start, EndAt: &end},
		api.ScheduleTimes{Cron: "0 3 * * 7", TimeZone: "Europe/Berlin", StartAt: new(now.AddDate(5, 0, 0))})
	for _, s := range schedules {
		what := strings.Join([]string{s.Cron, s.TimeZone, s.Interval.String()}, " ")
		require.NoError(t, schedule.PlanOf(&s).Validate(now), what)
		spec := store.ScheduleSpec(&s, now)
		require.Less(t, proto.Size(spec), 16<<10, what)
		clean := proto.CloneOf(spec)
		scheduler.CleanSpec(clean)
		require.True(t, proto.Equal(spec, clean), "%s: Temporal gives it back as it was", what)
		read := store.TimesOf(spec)
		if s.Interval != 0 {
			s.Offset = api.Duration(schedule.PlanOf(&s).Phase())
		}
		if s.StartAt != nil {
			s.StartAt = new(schedule.PlanOf(&s).Begin())
		}
		require.Equal(t, s, read, what)

		compiled, err := specs.NewCompiledSpec(spec)
		require.NoError(t, err, what)
		want, at := schedule.PlanOf(&s).Next(now, 500), now
		for i, next := range want {
			if i > 0 && next.Year() > max(now.Year(), schedule.PlanOf(&s).StartAt.Year())+1 {
				break // what RenewSchedules tells it in time
			}
			told, err := compiled.GetNextTime("", at)
			require.NoError(t, err)
			require.Equal(t, next, told.Nominal, "%s: after %s", what, at)
			at = next
		}
		if s.EndAt != nil && len(want) < 500 {
			told, err := compiled.GetNextTime("", at)
			require.NoError(t, err)
			require.True(t, told.Nominal.IsZero(), what)
		}
		// A schedule without a next time ends.
		last := time.Date(max(now.Year(), schedule.PlanOf(&s).StartAt.Year()), 12, 31, 23, 59, 59, 0, time.UTC)
		if s.EndAt == nil {
			told, err := compiled.GetNextTime("", last)
			require.NoError(t, err)
			require.Equal(t, schedule.PlanOf(&s).Next(last, 1)[0], told.Nominal, what)
		}
	}
}
