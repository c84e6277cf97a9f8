package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // so that time zones are known on machines that have none

	schedulepb "go.temporal.io/api/schedule/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"mainstay.dev/mainstay/internal/schedule"
	"mainstay.dev/sdk/api"
)

const (
	// zonePrefix is how the comment of a calendar names the time zone before the text of cron.
	zonePrefix = "CRON_TZ="
	// longestComment is what Temporal takes, in bytes.
	longestComment = 200
	// renewedPage is how many schedules are listed at a time.
	renewedPage = 500
)

// ScheduleSpec are the times of a valid schedule in Temporal's words, all in UTC. Temporal's own time zones lose or
// repeat times when clocks change. So a schedule in a time zone gets the list of its times until the end of next year
// at least; RenewSchedules adds the rest in time. The comments of the first calendars keep the text for people and for
// TimesOf.
func ScheduleSpec(t *api.ScheduleTimes, now time.Time) *schedulepb.ScheduleSpec {
	plan, spec := schedule.PlanOf(t), &schedulepb.ScheduleSpec{}
	if t.Cron == "" {
		spec.Interval = []*schedulepb.IntervalSpec{{Interval: durationpb.New(t.Interval.Std()),
			Phase: durationpb.New(plan.Phase())}}
	} else {
		spec.StructuredCalendar = calendarsOf(t, max(now.UTC().Year(), plan.StartAt.UTC().Year()))
	}
	if t.Jitter != 0 {
		spec.Jitter = durationpb.New(t.Jitter.Std())
	}
	if !plan.StartAt.IsZero() {
		spec.StartTime = timestamppb.New(plan.Begin())
	}
	if t.EndAt != nil {
		spec.EndTime = timestamppb.New(*t.EndAt)
	}
	return spec
}

// TimesOf reads what ScheduleSpec wrote. It leaves out what another tool wrote that has no form here.
func TimesOf(spec *schedulepb.ScheduleSpec) api.ScheduleTimes {
	t := api.ScheduleTimes{Jitter: api.Duration(spec.GetJitter().AsDuration())}
	if calendars := spec.GetStructuredCalendar(); len(calendars) > 0 {
		t.Cron = calendars[0].GetComment()
		if len(t.Cron) == longestComment && len(calendars) > 1 && calendars[1].GetComment() != t.Cron {
			t.Cron += calendars[1].GetComment()
		}
	}
	if rest, zoned := strings.CutPrefix(t.Cron, zonePrefix); zoned {
		t.TimeZone, t.Cron, _ = strings.Cut(rest, " ")
	}
	if intervals := spec.GetInterval(); len(intervals) > 0 {
		t.Interval, t.Offset = api.Duration(intervals[0].GetInterval().AsDuration()), api.Duration(
			intervals[0].GetPhase().AsDuration())
	}
	t.StartAt, t.EndAt = TimeOf(spec.GetStartTime()), TimeOf(spec.GetEndTime())
	return t
}

// calendarsOf are calendars of UTC with the times of cron, of a schedule in a time zone those of year and the next.
func calendarsOf(t *api.ScheduleTimes, year int) []*schedulepb.StructuredCalendarSpec {
	cron, err := schedule.ParseCron(t.Cron)
	zone, unknown := schedule.LoadZone(t.TimeZone)
	if err != nil || unknown != nil {
		return nil
	}
	comment := strings.Join(strings.Fields(t.Cron), " ")
	if t.TimeZone != "" {
		comment = zonePrefix + t.TimeZone + " " + comment
	}
	var calendars []*schedulepb.StructuredCalendarSpec
	if zone == time.UTC || t.TimeZone == "UTC" {
		calendars = calendarsForEver(cron)
	} else {
		calendars = calendarsUntil(cron, zone, year)
	}
	if len(calendars) == 1 && len(comment) > longestComment {
		calendars = append(calendars, proto.CloneOf(calendars[0]))
	}
	for _, c := range calendars {
		n := min(len(comment), longestComment)
		c.Comment, comment = comment[:n], comment[n:]
	}
	return calendars
}

// calendarsForEver are cron's calendars in UTC. A calendar requires both days, so there are two where either may match.
func calendarsForEver(c schedule.Cron) []*schedulepb.StructuredCalendarSpec {
	calendar := func(dayOfMonth, dayOfWeek schedule.CronField) *schedulepb.StructuredCalendarSpec {
		return &schedulepb.StructuredCalendarSpec{Second: ranges(1, 0), Minute: ranges(c.Minute, 0),
			Hour: ranges(c.Hour, 0), DayOfMonth: ranges(dayOfMonth, 0), Month: ranges(c.Month, 0),
			DayOfWeek: ranges(dayOfWeek, 0)}
	}
	if !c.EitherDay {
		return []*schedulepb.StructuredCalendarSpec{calendar(c.DayOfMonth, c.DayOfWeek)}
	}
	return []*schedulepb.StructuredCalendarSpec{calendar(c.DayOfMonth, schedule.EveryDayOfWeek),
		calendar(schedule.EveryDayOfMonth, c.DayOfWeek)}
}

// stretch are times that one calendar can hold. Its years are counted from the first.
type stretch struct{ minutes, hours, days, months, years schedule.CronField }

// calendarsUntil are the calendars of the times from the beginning of a year to the end of the next, or of the first
// later one that has any: a schedule without a next time ends.
func calendarsUntil(cron schedule.Cron, zone *time.Location, year int) []*schedulepb.StructuredCalendarSpec {
	merged := map[stretch]schedule.CronField{} // a day's times, and the days of the month that have them
	var day time.Time
	hours := map[schedule.CronField]schedule.CronField{} // of the day, by their minutes
	flush := func() {
		for minutes, of := range hours {
			merged[stretch{minutes: minutes, hours: of, months: 1 << day.Month(), years: 1 << (day.Year() - year)}] |=
				1 << day.Day()
		}
		clear(hours)
	}
	last := year + 1
	for hour, minutes := range cron.Hours(zone, time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)) {
		if !day.IsZero() && day.Year() > year && hour.Year() > last {
			break
		}
		last = max(last, hour.Year())
		if date := hour.Truncate(24 * time.Hour); date != day {
			flush()
			day = date
		}
		hours[minutes] |= 1 << hour.Hour()
	}
	flush()
	// Months with the same days become one calendar, and so do years with the same months.
	byMonth := map[stretch]schedule.CronField{}
	for s, days := range merged {
		first := time.Date(year+bits.TrailingZeros64(uint64(s.years)),
			time.Month(bits.TrailingZeros64(uint64(s.months))), 1, 0, 0, 0, 0, time.UTC)
		if bits.OnesCount64(uint64(days)) == first.AddDate(0, 1, -1).Day() {
			days = schedule.EveryDayOfMonth
		}
		months := s.months
		s.days, s.months = days, 0
		byMonth[s] |= months
	}
	byYear := map[stretch]schedule.CronField{}
	for s, months := range byMonth {
		years := s.years
		s.months, s.years = months, 0
		byYear[s] |= years
	}
	stretches := make([]stretch, 0, len(byYear))
	for s, years := range maps.All(byYear) {
		s.years = years
		stretches = append(stretches, s)
	}
	lowest := func(a, b schedule.CronField) int {
		return cmp.Or(cmp.Compare(bits.TrailingZeros64(uint64(a)), bits.TrailingZeros64(uint64(b))), cmp.Compare(a, b))
	}
	slices.SortFunc(stretches, func(a, b stretch) int {
		return cmp.Or(lowest(a.years, b.years), lowest(a.months, b.months), lowest(a.days, b.days),
			lowest(a.hours, b.hours), lowest(a.minutes, b.minutes))
	})
	calendars := make([]*schedulepb.StructuredCalendarSpec, len(stretches))
	for i, s := range stretches {
		calendars[i] = &schedulepb.StructuredCalendarSpec{Second: ranges(1, 0), Minute: ranges(s.minutes, 0),
			Hour: ranges(s.hours, 0), DayOfMonth: ranges(s.days, 0), Month: ranges(s.months, 0),
			DayOfWeek: ranges(schedule.EveryDayOfWeek, 0), Year: ranges(s.years, year)}
	}
	return calendars
}

// ranges are the values of a field, each with base added: one range if they have the same distance, else one for each
// run.
func ranges(f schedule.CronField, base int) (list []*schedulepb.Range) {
	values := make([]int32, 0, bits.OnesCount64(uint64(f)))
	for n := range 64 {
		if f.Has(n) {
			values = append(values, int32(base+n))
		}
	}
	from, step := 0, int32(1)
	if len(values) > 2 {
		step = values[1] - values[0]
	}
	for i := 1; i < len(values) && step > 1; i++ {
		if values[i]-values[i-1] != step {
			step = 1
		}
	}
	for i, v := range values {
		if i == len(values)-1 || values[i+1] != v+step {
			list = append(list, &schedulepb.Range{Start: values[from], End: v, Step: step})
			from = i + 1
		}
	}
	return list
}

// RenewSchedules gives Temporal the times of the schedules by cron anew, where they differ from the schedules' own:
// when a year has begun, when the time zone has other rules than before, and after an upgrade.
func (s Store) RenewSchedules(ctx context.Context, now time.Time) error {
	var failed []error
	for token, more := []byte(nil), true; more; more = len(token) > 0 {
		page, next, err := s.Schedules(ctx, AllSchedules, renewedPage, token)
		if err != nil {
			return fmt.Errorf("list schedules: %w", err)
		}
		for _, entry := range page {
			listed := entry.GetInfo().GetSpec()
			if times := TimesOf(listed); times.Cron == "" || times.TimeZone == "" && len(listed.GetStructuredCalendar()) > 0 &&
				proto.Equal(listed, ScheduleSpec(&times, now)) {
				continue
			}
			if err := s.renewSchedule(ctx, entry.GetScheduleId(), now); err != nil && KindOf(err) != NotFound {
				failed = append(failed, fmt.Errorf("renew the times of schedule %s: %w", entry.GetScheduleId(), err))
			}
		}
		token = next
	}
	return errors.Join(failed...)
}

func (s Store) renewSchedule(ctx context.Context, id string, now time.Time) error {
	d, err := s.DescribeSchedule(ctx, id)
	if err != nil {
		return err
	}
	schedule := d.GetSchedule()
	times := TimesOf(schedule.GetSpec())
	spec := ScheduleSpec(&times, now)
	if len(spec.GetStructuredCalendar()) == 0 || proto.Equal(spec, schedule.GetSpec()) {
		return nil
	}
	schedule.Spec = spec
	return s.ReplaceSchedule(ctx, id, schedule, nil, d.GetConflictToken())
}
