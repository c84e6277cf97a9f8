package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Overlap is what a schedule does when its next time comes before the previous task has ended.
type Overlap string

// The overlaps.
const (
	OverlapSkip        Overlap = "skip"         // make no task
	OverlapBufferOne   Overlap = "buffer_one"   // make it when the previous one ends; at most one waits so
	OverlapAllowAll    Overlap = "allow_all"    // make it at once
	OverlapCancelOther Overlap = "cancel_other" // cancel the previous one, then make it
)

// Bounds and defaults of schedules.
const (
	// MaxScheduleName leaves room for the time in the ids of a schedule's tasks.
	MaxScheduleName = MaxIDLength - len("@20060102t150405z")
	// How late a task that was due while Mainstay was down may be made: see CatchupWindow.
	leastCatchupWindow = time.Minute
	mostCatchupWindow  = time.Hour
	catchupStarts      = 10
	minInterval        = time.Second
	minCatchupWindow   = 10 * time.Second
	longestSpan        = 366 * 24 * time.Hour
)

// StartsAMinute is how often a schedule starts something at most. Of cron it is that of an hour that it names. One that
// only another tool could make counts as one each minute.
func StartsAMinute(cron string, interval Duration) float64 {
	if interval > 0 {
		return float64(time.Minute) / float64(interval)
	}
	c, err := ParseCron(cron)
	if err != nil {
		return 1
	}
	minutes := map[int]bool{}
	for _, r := range c.Minute {
		for minute := r.From; minute <= r.To; minute += r.Step {
			minutes[minute] = true
		}
	}
	return float64(len(minutes)) / 60
}

// CatchupWindow is how late a schedule that does not say so makes what was due while Mainstay was down: so that few are
// made at once then, it is short for those that start something often.
func CatchupWindow(cron string, interval Duration) time.Duration {
	window := catchupStarts * float64(time.Minute) / StartsAMinute(cron, interval)
	return min(max(time.Duration(window), leastCatchupWindow), mostCatchupWindow)
}

// SchedulePlan decides when a schedule makes a task: by Cron or by Interval.
type SchedulePlan struct {
	Cron     string
	TimeZone string // an IANA name; empty: UTC
	// Interval is counted from 1970-01-01 UTC plus Offset, so it does not drift.
	Interval Duration
	Offset   Duration
	Overlap  Overlap
	// CatchupWindow of zero is that of the function of this name.
	CatchupWindow Duration
	// Jitter delays each task by up to this much.
	Jitter  Duration
	StartAt time.Time
	EndAt   time.Time
}

// FieldError is a mistake in one field of a request, with the field's JSON name. It does not repeat the value.
type FieldError struct {
	Field string
	Err   error
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + " " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

func wrongField(field, format string, args ...any) error {
	return &FieldError{field, fmt.Errorf(format, args...)}
}

// Validate checks the plan, except the name of its time zone. Its errors are FieldErrors.
func (p *SchedulePlan) Validate(now time.Time) error {
	switch {
	case p.Cron == "" && p.Interval == 0:
		return wrongField("cron", "must be given, or interval: one of them says when a task is made")
	case p.Cron != "" && p.Interval != 0:
		return wrongField("interval", "must be left out when there is cron")
	case p.Cron != "":
		if _, err := ParseCron(p.Cron); err != nil {
			return &FieldError{"cron", err}
		}
		if p.Offset != 0 {
			return wrongField("offset", "belongs to interval; cron names its times")
		}
	case p.TimeZone != "":
		return wrongField("time_zone", "belongs to cron; an interval needs none")
	case p.Offset < 0 || p.Offset >= p.Interval && p.Offset != 0:
		return wrongField("offset", "must be at least 0s and less than interval")
	}
	if err := cmp.Or(ValidateTime("start_at", p.StartAt), ValidateTime("end_at", p.EndAt),
		ValidateDuration("interval", p.Interval, minInterval, longestSpan),
		ValidateDuration("catchup_window", p.CatchupWindow, minCatchupWindow, longestSpan),
		ValidateDuration("jitter", p.Jitter, time.Second, 24*time.Hour)); err != nil {
		return err
	}
	switch p.Overlap {
	case "", OverlapSkip, OverlapBufferOne, OverlapAllowAll, OverlapCancelOther:
	default:
		return wrongField("overlap", "must be skip, buffer_one, allow_all or cancel_other")
	}
	switch {
	case p.EndAt.IsZero():
	case !p.EndAt.After(now):
		return wrongField("end_at", "must lie ahead")
	case !p.EndAt.After(p.StartAt):
		return wrongField("end_at", "must be after start_at")
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

// MaxCronLength bounds the text of a cron schedule, in bytes.
const MaxCronLength = 200

// Cron is a cron schedule: the times at which every field has the minute, hour, day and so on. Calendars explains days.
type Cron struct{ Minute, Hour, DayOfMonth, Month, DayOfWeek CronField }

// CronField is one field: the union of its ranges, never empty. Sunday is 0.
type CronField []CronRange

// CronRange is From, From+Step, … up to To.
type CronRange struct{ From, To, Step int }

// cronFields are the five fields in the order of the text. Names are for Min, Min+1 and so on.
var cronFields = []struct {
	name     string
	min, max int
	names    []string
}{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// cronWords are the usual short forms.
var cronWords = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

// ParseCron reads a cron schedule of five fields: minute, hour, day of month, month, day of week. A field is *, a
// number or a name, a range such as 1-5, any of these with a step such as */15, or a list of them with commas. The
// error names the wrong field and does not repeat the text.
func ParseCron(text string) (Cron, error) {
	if len(text) > MaxCronLength {
		return Cron{}, fmt.Errorf("must be at most %d characters", MaxCronLength)
	}
	if word, ok := cronWords[strings.TrimSpace(text)]; ok {
		text = word
	}
	parts := strings.Fields(text)
	if len(parts) != len(cronFields) {
		return Cron{}, fmt.Errorf("must have 5 fields (minute, hour, day of month, month, day of week), and has %d",
			len(parts))
	}
	var parsed [5]CronField
	for i, part := range parts {
		field, err := parseCronField(i, strings.ToLower(part))
		if err != nil {
			return Cron{}, fmt.Errorf("field %d (%s) %w", i+1, cronFields[i].name, err)
		}
		parsed[i] = field
	}
	c := Cron{Minute: parsed[0], Hour: parsed[1], DayOfMonth: parsed[2], Month: parsed[3], DayOfWeek: parsed[4]}
	if !c.everHappens() {
		return Cron{}, errors.New(
			"names a day of the month (field 3) that its months (field 4) do not have, so it would never fire")
	}
	return c, nil
}

func parseCronField(i int, text string) (CronField, error) {
	var field CronField
	for item := range strings.SplitSeq(text, ",") {
		r, err := parseCronRange(i, item)
		if err != nil {
			return nil, err
		}
		field = append(field, r)
	}
	return field, nil
}

func parseCronRange(i int, text string) (CronRange, error) {
	f := cronFields[i]
	span, stepText, stepped := strings.Cut(text, "/")
	r := CronRange{From: f.min, To: f.max, Step: 1}
	if stepped {
		step, err := strconv.Atoi(stepText)
		if err != nil || step < 1 || step > f.max {
			return r, fmt.Errorf("has a step that is not 1 to %d", f.max)
		}
		r.Step = step
	}
	if span == "*" {
		if i == 4 {
			r.To = 6
		}
		return r, nil
	}
	first, last, ranged := strings.Cut(span, "-")
	var err error
	if r.From, err = cronValue(i, first); err != nil {
		return r, err
	}
	switch {
	case ranged:
		if r.To, err = cronValue(i, last); err != nil {
			return r, err
		}
	case !stepped:
		r.To = r.From
	}
	if r.To < r.From {
		return r, errors.New("has a range that runs backwards")
	}
	return r, nil
}

func cronValue(i int, text string) (int, error) {
	f := cronFields[i]
	if n := slices.Index(f.names, text); n >= 0 {
		return f.min + n, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max {
		wants := fmt.Sprintf("must hold numbers from %d to %d", f.min, f.max)
		if f.names != nil {
			wants += fmt.Sprintf(" or names such as %s", f.names[1])
		}
		return 0, errors.New(wants + ", ranges (1-5), steps (*/15) or lists (1,3)")
	}
	return n, nil
}

// Calendars returns the calendars of which any may match. In cron a day matches if day of month or day of week does,
// when both are restricted. A calendar requires both, so there are two calendars then.
func (c Cron) Calendars() []Cron {
	if c.DayOfMonth.covers(1, 31) || c.DayOfWeek.covers(0, 6) {
		return []Cron{c}
	}
	byMonth, byWeek := c, c
	byMonth.DayOfWeek, byWeek.DayOfMonth = CronField{{0, 6, 1}}, CronField{{1, 31, 1}}
	return []Cron{byMonth, byWeek}
}

// covers reports whether one range of the field has all of first…last, as * does.
func (f CronField) covers(first, last int) bool {
	return slices.ContainsFunc(f, func(r CronRange) bool { return r.From <= first && r.To >= last && r.Step == 1 })
}

// everHappens reports whether the schedule has any time: February 30 never comes.
func (c Cron) everHappens() bool {
	if !c.DayOfWeek.covers(0, 6) {
		return true
	}
	days := [...]int{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}
	for _, m := range c.Month {
		for month := m.From; month <= m.To; month += m.Step {
			for _, d := range c.DayOfMonth {
				if d.From <= days[month-1] {
					return true
				}
			}
		}
	}
	return false
}
