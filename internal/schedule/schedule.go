// Package schedule says when schedules fire.
package schedule

import (
	"cmp"
	"math/bits"
	"time"

	"mainstay.dev/sdk/api"
)

// Bounds and defaults of schedules.
const (
	// How late a task that was due while Mainstay was down may be made: see CatchupWindow.
	leastCatchupWindow = time.Minute
	mostCatchupWindow  = time.Hour
	catchupStarts      = 10
)

// StartsAMinute is the most starts of a schedule a minute. For cron it is the rate within an hour that it names. A
// schedule that only another tool could make counts as one start a minute.
func StartsAMinute(cron string, interval api.Duration) float64 {
	if interval > 0 {
		return float64(time.Minute) / float64(interval)
	}
	c, err := ParseCron(cron)
	if err != nil {
		return 1
	}
	return float64(bits.OnesCount64(uint64(c.Minute))) / 60
}

// CatchupWindow is the default for how late a schedule still makes what was due while Mainstay was down. It is short
// for frequent schedules, so that few things start at once then.
func CatchupWindow(cron string, interval api.Duration) time.Duration {
	window := catchupStarts * float64(time.Minute) / StartsAMinute(cron, interval)
	return min(max(time.Duration(window), leastCatchupWindow), mostCatchupWindow)
}

// SchedulePlan decides when a schedule makes a task: by Cron or by Interval.
type SchedulePlan struct {
	Cron     string
	TimeZone string // an IANA name; empty: UTC
	// Interval is counted from 1970-01-01 UTC plus Offset, so it does not drift: see Phase.
	Interval api.Duration `json:"interval" least:"1s" most:"8784h"`
	Offset   api.Duration `json:"offset" least:"0s" most:"8784h"`
	Overlap  api.Overlap
	// CatchupWindow of zero is that of the function of this name.
	CatchupWindow api.Duration `json:"catchup_window" least:"10s" most:"8784h"`
	// Jitter delays each task by up to this much.
	Jitter  api.Duration `json:"jitter" least:"0s" most:"24h"`
	StartAt time.Time
	EndAt   time.Time
}

// Validate checks the plan, so that Temporal refuses nothing of it. Its errors are FieldErrors.
func (p *SchedulePlan) Validate(now time.Time) error {
	switch {
	case p.Cron == "" && p.Interval == 0:
		return api.WrongField("cron", "must be given, or interval: one of them says when a task is made")
	case p.Cron != "" && p.Interval != 0:
		return api.WrongField("interval", "must be left out when there is cron")
	case p.Cron != "":
		if _, err := ParseCron(p.Cron); err != nil {
			return &api.FieldError{Field: "cron", Err: err}
		}
		if _, err := LoadZone(p.TimeZone); err != nil {
			return &api.FieldError{Field: "time_zone", Err: err}
		}
		if p.Offset != 0 {
			return api.WrongField("offset", "belongs to interval; cron names its times")
		}
	case p.TimeZone != "":
		return api.WrongField("time_zone", "belongs to cron; an interval needs none")
	case p.Offset < 0 || p.Offset >= p.Interval && p.Offset != 0:
		return api.WrongField("offset", "must be at least 0s and less than interval")
	}
	if err := cmp.Or(api.ValidateTime("start_at", p.StartAt), api.ValidateTime("end_at", p.EndAt),
		api.Within("", p)); err != nil {
		return err
	}
	switch {
	case p.Interval.Std()%time.Second != 0:
		return api.WrongField("interval", "must be whole seconds")
	case p.Offset.Std()%time.Second != 0:
		return api.WrongField("offset", "must be whole seconds")
	}
	switch p.Overlap {
	case "", api.OverlapSkip, api.OverlapBufferOne, api.OverlapAllowAll, api.OverlapCancelOther:
	default:
		return api.WrongField("overlap", "must be skip, buffer_one, allow_all or cancel_other")
	}
	if year := p.StartAt.UTC().Year(); !p.StartAt.IsZero() && (year < 1970 || year >= LastScheduleYear) {
		return api.WrongField("start_at", "must be of the years 1970 to %d", LastScheduleYear-1)
	}
	switch {
	case p.EndAt.IsZero() && len(p.Next(now, 1)) == 0:
		return api.WrongField("cron", "has no time until the year %d", LastScheduleYear)
	case p.EndAt.IsZero():
	case !p.EndAt.After(now):
		return api.WrongField("end_at", "must lie ahead")
	case !p.EndAt.After(p.StartAt):
		return api.WrongField("end_at", "must be after start_at")
	}
	return nil
}

// Phase shifts an interval: it is Offset, or the phase of StartAt, so that the interval begins then.
func (p *SchedulePlan) Phase() time.Duration {
	if p.Offset != 0 || p.StartAt.IsZero() || p.Interval.Std() < time.Second {
		return p.Offset.Std()
	}
	interval := int64(p.Interval.Std() / time.Second)
	return time.Duration((p.Begin().Unix()%interval+interval)%interval) * time.Second
}

// Begin is StartAt in whole seconds, as the times of schedules are; never before it.
func (p *SchedulePlan) Begin() time.Time { return p.StartAt.Add(time.Second - 1).Truncate(time.Second) }

// Next are the next times of a valid plan after now, n at most. Temporal gets the same ones.
func (p *SchedulePlan) Next(now time.Time, n int) []time.Time {
	after := now.UTC()
	if begin := p.Begin(); !p.StartAt.IsZero() && begin.After(after) {
		after = begin.UTC().Add(-time.Second)
	}
	next := func(t time.Time) time.Time {
		interval, phase := int64(p.Interval.Std()/time.Second), int64(p.Phase()/time.Second)
		return time.Unix(((t.Unix()-phase)/interval+1)*interval+phase, 0).UTC()
	}
	if p.Cron != "" {
		cron, err := ParseCron(p.Cron)
		zone, unknown := LoadZone(p.TimeZone)
		if err != nil || unknown != nil {
			return nil
		}
		next = func(t time.Time) time.Time { return cron.Next(zone, t) }
	} else if p.Interval.Std() < time.Second {
		return nil
	}
	times := make([]time.Time, 0, n)
	for len(times) < n {
		after = next(after)
		if after.IsZero() || after.Year() > LastScheduleYear || !p.EndAt.IsZero() && after.After(p.EndAt) {
			break
		}
		times = append(times, after)
	}
	return times
}
