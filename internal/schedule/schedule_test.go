package schedule_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/schedule"
	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

func TestSchedulePlan(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	d := func(d time.Duration) api.Duration { return api.Duration(d) }
	for name, c := range map[string]struct {
		plan  schedule.SchedulePlan
		field string
	}{
		"cron": {schedule.SchedulePlan{Cron: "0 3 * * *", TimeZone: "Europe/Berlin",
			Jitter: d(time.Minute), EndAt: now.Add(1)}, ""},
		"interval": {schedule.SchedulePlan{Interval: d(time.Second), Overlap: api.OverlapCancelOther,
			CatchupWindow: d(10 * time.Second)}, ""},
		"interval with offset": {schedule.SchedulePlan{Interval: d(time.Hour), Offset: d(59 * time.Minute),
			StartAt: now.Add(-time.Hour)}, ""},
		"neither":                  {schedule.SchedulePlan{}, "cron"},
		"both":                     {schedule.SchedulePlan{Cron: "0 3 * * *", Interval: d(time.Hour)}, "interval"},
		"wrong cron":               {schedule.SchedulePlan{Cron: "0 3 * *"}, "cron"},
		"offset of cron":           {schedule.SchedulePlan{Cron: "0 3 * * *", Offset: d(time.Hour)}, "offset"},
		"zone of interval":         {schedule.SchedulePlan{Interval: d(time.Hour), TimeZone: "UTC"}, "time_zone"},
		"offset like the interval": {schedule.SchedulePlan{Interval: d(time.Hour), Offset: d(time.Hour)}, "offset"},
		"short interval":           {schedule.SchedulePlan{Interval: d(time.Millisecond)}, "interval"},
		"negative interval":        {schedule.SchedulePlan{Interval: d(-time.Hour)}, "interval"},
		"short window": {schedule.SchedulePlan{Interval: d(time.Hour), CatchupWindow: d(time.Second)},
			"catchup_window"},
		"long jitter":     {schedule.SchedulePlan{Interval: d(time.Hour), Jitter: d(25 * time.Hour)}, "jitter"},
		"unknown overlap": {schedule.SchedulePlan{Interval: d(time.Hour), Overlap: "explode"}, "overlap"},
		"a year of five digits in UTC": {schedule.SchedulePlan{Interval: d(time.Hour),
			EndAt: time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200))}, "end_at"},
		"an interval longer than any":     {schedule.SchedulePlan{Interval: d(1<<63 - 1)}, "interval"},
		"an interval of no whole seconds": {schedule.SchedulePlan{Interval: d(1500 * time.Millisecond)}, "interval"},
		"an offset of no whole seconds": {schedule.SchedulePlan{Interval: d(time.Hour), Offset: d(time.Millisecond)},
			"offset"},
		"the server's time zone": {schedule.SchedulePlan{Cron: "0 3 * * *", TimeZone: "Local"}, "time_zone"},
		"no time zone":           {schedule.SchedulePlan{Cron: "0 3 * * *", TimeZone: "Mars/Olympus"}, "time_zone"},
		"starts in year 0": {schedule.SchedulePlan{Interval: d(time.Hour),
			StartAt: time.Date(0, 6, 1, 0, 0, 0, 0, time.UTC)}, "start_at"},
		"starts when Temporal ends": {schedule.SchedulePlan{Interval: d(time.Hour),
			StartAt: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}, "start_at"},
		"over": {schedule.SchedulePlan{Interval: d(time.Hour), EndAt: now}, "end_at"},
		"ends before it starts": {schedule.SchedulePlan{Interval: d(time.Hour), StartAt: now.Add(2 * time.Hour),
			EndAt: now.Add(time.Hour)}, "end_at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.plan.Validate(now)
			if c.field == "" {
				require.NoError(t, err)
				return
			}
			var wrong *api.FieldError
			require.True(t, errors.As(err, &wrong), "%v", err)
			require.Equal(t, c.field, wrong.Field, "%v", err)
			require.NotContains(t, err.Error(), "explode")
		})
	}
}

func TestNextTimesOfSchedules(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 34, 56, 7, time.UTC)
	d := func(d time.Duration) api.Duration { return api.Duration(d) }
	for name, c := range map[string]struct {
		plan schedule.SchedulePlan
		want string
	}{
		"interval":        {schedule.SchedulePlan{Interval: d(time.Hour)}, "13:00:00 14:00:00 15:00:00"},
		"with an offset":  {schedule.SchedulePlan{Interval: d(time.Hour), Offset: d(time.Minute)}, "13:01:00 14:01:00 15:01:00"},
		"begins at start": {schedule.SchedulePlan{Interval: d(time.Hour), StartAt: now.Add(10 * time.Minute)}, "12:44:57 13:44:57 14:44:57"},
		"began at start":  {schedule.SchedulePlan{Interval: d(time.Hour), StartAt: now.Add(-50*time.Hour - time.Minute)}, "13:33:57 14:33:57 15:33:57"},
		"from the start on, with an offset": {schedule.SchedulePlan{Interval: d(time.Hour), Offset: d(time.Minute),
			StartAt: now.Add(time.Hour)}, "14:01:00 15:01:00 16:01:00"},
		"cron from its start on": {schedule.SchedulePlan{Cron: "*/30 * * * *",
			StartAt: time.Date(2026, 11, 21, 16, 30, 0, 0, time.UTC)}, "16:30:00 17:00:00 17:30:00"},
		"cron from a part of a second on": {schedule.SchedulePlan{Cron: "*/30 * * * *",
			StartAt: time.Date(2026, 11, 21, 16, 30, 0, 1, time.UTC)}, "17:00:00 17:30:00 18:00:00"},
		"until its end":  {schedule.SchedulePlan{Interval: d(time.Hour), EndAt: now.Add(2 * time.Hour)}, "13:00:00 14:00:00"},
		"ended":          {schedule.SchedulePlan{Interval: d(time.Hour), EndAt: now}, ""},
		"in a time zone": {schedule.SchedulePlan{Cron: "0 9 * * *", TimeZone: "Asia/Kolkata"}, "03:30:00 03:30:00 03:30:00"},
		"of other tools": {schedule.SchedulePlan{}, ""},
		"unreadable":     {schedule.SchedulePlan{Cron: "hunter2"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, at := range c.plan.Next(now, 3) {
				got = append(got, at.Format(time.TimeOnly))
			}
			require.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}

func TestStartsAndCatchUpOfSchedules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cron     string
		interval time.Duration
		starts   float64
		catchUp  time.Duration
	}{
		"each second":          {"", time.Second, 60, time.Minute},
		"each half minute":     {"", 30 * time.Second, 2, 5 * time.Minute},
		"each hour":            {"", time.Hour, 1.0 / 60, time.Hour},
		"each year":            {"", 366 * 24 * time.Hour, 1.0 / (366 * 24 * 60), time.Hour},
		"each minute":          {"* * * * *", 0, 1, 10 * time.Minute},
		"minutes named twice":  {"0-9,5-9/2,*/30 * 13 * fri", 0, 11.0 / 60, 54*time.Minute + 32727272727},
		"a day":                {"@daily", 0, 1.0 / 60, time.Hour},
		"made by another tool": {"", 0, 1, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.InDelta(t, c.starts, schedule.StartsAMinute(c.cron, api.Duration(c.interval)), 1e-9)
			require.InDelta(t, c.catchUp, schedule.CatchupWindow(c.cron, api.Duration(c.interval)), 10)
		})
	}
}

func TestScheduleNames(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("n", api.MaxScheduleName)
	require.NoError(t, api.ValidateScheduleName(longest))
	require.True(t, api.IsTaskID(longest+"@20261121t030000z"), "the ids of its tasks fit")
	require.ErrorIs(t, api.ValidateScheduleName(longest+"n"), api.ErrInvalidID)
	require.ErrorIs(t, api.ValidateScheduleName("Nightly"), api.ErrInvalidID)
}

func TestBulkValidate(t *testing.T) {
	t.Parallel()
	render := api.TaskFilter{Type: "render"}
	for name, c := range map[string]struct {
		bulk  task.Bulk
		field string
	}{
		"by filter": {task.Bulk{Action: api.BulkCancel, Filter: render}, ""},
		"by ids":    {task.Bulk{Action: api.BulkRetry, IDs: []string{"t-1"}}, ""},
		"all":       {task.Bulk{Action: api.BulkDiscard, All: true}, ""},
		"review": {task.Bulk{Action: api.BulkReview, Filter: render, Decision: api.ReviewRerun},
			""},
		"priority":         {task.Bulk{Action: api.BulkPriority, Filter: render, Priority: 5}, ""},
		"nothing selected": {task.Bulk{Action: api.BulkCancel}, "filter"},
		"id that is none":  {task.Bulk{Action: api.BulkCancel, IDs: []string{"No"}}, "filter.ids"},
		"too many ids": {task.Bulk{Action: api.BulkCancel, IDs: make([]string, task.MaxBulkIDs+1)},
			"filter.ids"},
		"unknown action": {task.Bulk{Action: "explode", Filter: render}, "action"},
		"status it is not for": {task.Bulk{Action: api.BulkDiscard,
			Filter: api.TaskFilter{Status: api.TaskReview}}, "filter.status"},
		"unknown decision": {task.Bulk{Action: api.BulkReview, Filter: render, Decision: "explode"},
			"decision"},
		"priority out of range": {task.Bulk{Action: api.BulkPriority, Filter: render, Priority: 6}, "priority"},
		"a year that JSON cannot hold": {task.Bulk{Action: api.BulkCancel, Filter: api.TaskFilter{
			SubmittedAfter: time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 14*3600))}}, "filter.submitted_after"},
		"label without a name": {task.Bulk{Action: api.BulkCancel,
			Filter: api.TaskFilter{Labels: map[string]string{"": "x"}}}, "filter.labels"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.bulk.Validate()
			if c.field == "" {
				require.NoError(t, err)
				return
			}
			var wrong *api.FieldError
			require.True(t, errors.As(err, &wrong), "%v", err)
			require.Equal(t, c.field, wrong.Field, "%v", err)
		})
	}
}
