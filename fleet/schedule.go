package fleet

import (
	"fmt"
	"time"
)

// Overlap says what a schedule does when it is time for a task while the one before has not ended.
type Overlap string

// The overlaps.
const (
	OverlapSkip        Overlap = "skip"         // leave this one out
	OverlapBufferOne   Overlap = "buffer_one"   // make it when the one before ends; at most one waits so
	OverlapAllowAll    Overlap = "allow_all"    // make it all the same
	OverlapCancelOther Overlap = "cancel_other" // cancel the one before, then make it
)

// Bounds and defaults of schedules.
const (
	// MaxScheduleName leaves room for the time in the ids of a schedule's tasks.
	MaxScheduleName = MaxIDLength - len("@20060102t150405z")
	// DefaultCatchupWindow is how late a task may be made that was due while Mainstay was down.
	DefaultCatchupWindow = time.Hour
	minInterval          = time.Second
	minCatchupWindow     = 10 * time.Second
	longestSpan          = 366 * 24 * time.Hour
)

// SchedulePlan says when a schedule makes a task: by Cron or by Interval.
type SchedulePlan struct {
	Cron     string
	TimeZone string // an IANA name; empty: UTC
	// Interval is counted from 1970-01-01 UTC plus Offset, so it does not drift.
	Interval Duration
	Offset   Duration
	Overlap  Overlap
	// CatchupWindow of zero is DefaultCatchupWindow.
	CatchupWindow Duration
	// Jitter delays each task by up to this much.
	Jitter  Duration
	StartAt time.Time
	EndAt   time.Time
}

// FieldError is a mistake in one field of a request, by the field's JSON name. It does not repeat the value.
type FieldError struct {
	Field string
	Err   error
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + " " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// Validate checks the plan but for the name of its time zone. Its errors are FieldErrors.
func (p *SchedulePlan) Validate(now time.Time) error {
	wrong := func(field, format string, args ...any) error { return &FieldError{field, fmt.Errorf(format, args...)} }
	switch {
	case p.Cron == "" && p.Interval == 0:
		return wrong("cron", "must be given, or interval: one of them says when a task is made")
	case p.Cron != "" && p.Interval != 0:
		return wrong("interval", "must be left out when there is cron")
	case p.Cron != "":
		if _, err := ParseCron(p.Cron); err != nil {
			return &FieldError{"cron", err}
		}
		if p.Offset != 0 {
			return wrong("offset", "belongs to interval; cron names its times")
		}
	case p.TimeZone != "":
		return wrong("time_zone", "belongs to cron; an interval needs none")
	case p.Offset < 0 || p.Offset >= p.Interval && p.Offset != 0:
		return wrong("offset", "must be at least 0s and less than interval")
	}
	for _, d := range []struct {
		field    string
		value    Duration
		min, max time.Duration
	}{
		{"interval", p.Interval, minInterval, longestSpan},
		{"catchup_window", p.CatchupWindow, minCatchupWindow, longestSpan},
		{"jitter", p.Jitter, time.Second, 24 * time.Hour},
	} {
		if d.value != 0 && (d.value.Std() < d.min || d.value.Std() > d.max) {
			return wrong(d.field, "must be between %s and %s", d.min, d.max)
		}
	}
	switch p.Overlap {
	case "", OverlapSkip, OverlapBufferOne, OverlapAllowAll, OverlapCancelOther:
	default:
		return wrong("overlap", "must be skip, buffer_one, allow_all or cancel_other")
	}
	switch {
	case p.EndAt.IsZero():
	case !p.EndAt.After(now):
		return wrong("end_at", "must lie ahead")
	case !p.EndAt.After(p.StartAt):
		return wrong("end_at", "must be after start_at")
	}
	return nil
}

// ValidateScheduleName checks that name, without its tenant, is a slug that leaves room for the time in task ids.
func ValidateScheduleName(name string) error {
	if err := ValidateID("name", name); err != nil {
		return err
	}
	if len(name) > MaxScheduleName {
		return fmt.Errorf("%w: name may be at most %d characters, so that the ids of its tasks fit", ErrInvalidID,
			MaxScheduleName)
	}
	return nil
}
