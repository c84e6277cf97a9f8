package schedule

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxCronLength bounds the text of a cron schedule, in bytes.
const MaxCronLength = 200

// LastScheduleYear is the last year that Temporal's schedules know.
const LastScheduleYear = 2100

// mostShift bounds the changes of a clock that schedules make up for, as Debian's cron has it. A larger one is taken
// for a correction: only what the clock shows counts.
const mostShift = 3 * time.Hour

// Cron is a cron schedule, read as Debian's cron reads it.
type Cron struct {
	Minute, Hour, DayOfMonth, Month, DayOfWeek CronField
	// EitherDay says that a day matches if the day of the month or that of the week does. Otherwise both must: in cron,
	// a field of days that begins with * restricts the other.
	EitherDay bool
	// Running says that minute or hour begins with *: the schedule goes by what the clock shows, through its changes
	// too. Otherwise the schedule names times of a day, and each comes once.
	Running bool
}

// CronField has a bit for each value that it names. Sunday is 0.
type CronField uint64

// Has reports whether the field names n.
func (f CronField) Has(n int) bool { return f>>n&1 == 1 }

// EveryDayOfMonth and EveryDayOfWeek are the fields of days that name all.
const (
	EveryDayOfMonth CronField = 1<<32 - 2
	EveryDayOfWeek  CronField = 1<<7 - 1
)

// sunday is how a week may end, too.
const sunday = 7

// cronFields are the five fields in the order of the text. Names are for min, min+1 and so on.
var cronFields = []struct {
	name     string
	min, max int
	names    []string
}{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of week", 0, sunday, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
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
	text = strings.ToLower(strings.TrimSpace(text))
	if word, ok := cronWords[text]; ok {
		text = word
	}
	parts := strings.Fields(text)
	switch {
	case strings.HasPrefix(text, "@every"):
		return Cron{}, errors.New("cannot hold @every: give interval instead")
	case strings.HasPrefix(text, "tz=") || strings.HasPrefix(text, "cron_tz="):
		return Cron{}, errors.New("cannot hold a time zone: give time_zone beside it")
	case len(parts) != len(cronFields):
		return Cron{}, fmt.Errorf("must have 5 fields (minute, hour, day of month, month, day of week), and has %d",
			len(parts))
	}
	var fields [5]CronField
	for i, part := range parts {
		for item := range strings.SplitSeq(part, ",") {
			field, err := parseCronItem(i, item)
			if err != nil {
				return Cron{}, fmt.Errorf("field %d (%s) %w", i+1, cronFields[i].name, err)
			}
			fields[i] |= field
		}
	}
	if fields[4].Has(sunday) {
		fields[4] = (fields[4] | 1) & EveryDayOfWeek
	}
	star := func(i int) bool { return parts[i][0] == '*' }
	c := Cron{Minute: fields[0], Hour: fields[1], DayOfMonth: fields[2], Month: fields[3], DayOfWeek: fields[4],
		EitherDay: !star(2) && !star(4), Running: star(0) || star(1)}
	if !c.everHappens() {
		return Cron{}, errors.New(
			"names a day of the month (field 3) that its months (field 4) do not have, so it would never fire")
	}
	return c, nil
}

// parseCronItem reads one item of a list.
func parseCronItem(i int, text string) (field CronField, err error) {
	f := cronFields[i]
	span, stepText, stepped := strings.Cut(text, "/")
	from, to, step := f.min, f.max, 1
	if i == 4 {
		to = sunday - 1
	}
	if stepped {
		if step, err = cronNumber(stepText); err != nil || step < 1 || step > f.max+1-f.min {
			return 0, fmt.Errorf("has a step that is not 1 to %d", f.max+1-f.min)
		}
	}
	if span != "*" {
		first, last, ranged := strings.Cut(span, "-")
		if from, err = cronValue(i, first); err != nil {
			return 0, err
		}
		switch {
		case ranged:
			if to, err = cronValue(i, last); err != nil {
				return 0, err
			}
			if i == 4 && last == f.names[0] && from > 0 {
				to = sunday // fri-sun
			}
		case !stepped || from > to:
			to = from
		}
	}
	if to < from {
		hint := ""
		if i == 4 && to == 0 {
			hint = ": Sunday at the end of a range is 7"
		}
		return 0, errors.New("has a range that runs backwards" + hint)
	}
	for n := from; n <= to; n += step {
		field |= 1 << n
	}
	return field, nil
}

func cronValue(i int, text string) (int, error) {
	f := cronFields[i]
	if n := slices.Index(f.names, text); n >= 0 {
		return f.min + n, nil
	}
	n, err := cronNumber(text)
	if err != nil || n < f.min || n > f.max {
		wants := fmt.Sprintf("must hold numbers from %d to %d", f.min, f.max)
		if f.names != nil {
			wants += fmt.Sprintf(" or names such as %s", f.names[1])
		}
		return 0, errors.New(wants + ", ranges (1-5), steps (*/15) or lists (1,3)")
	}
	return n, nil
}

// cronNumber reads a number without a sign.
func cronNumber(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err
}

// everHappens reports whether the schedule has any time: February 30 never comes.
func (c Cron) everHappens() bool {
	if c.EitherDay {
		return true
	}
	days := [...]int{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}
	first := bits.TrailingZeros64(uint64(c.DayOfMonth))
	for i, n := range days {
		if c.Month.Has(i+1) && first <= n {
			return true
		}
	}
	return false
}

// day reports whether a day matches.
func (c Cron) day(t time.Time) bool {
	if !c.Month.Has(int(t.Month())) {
		return false
	}
	byMonth, byWeek := c.DayOfMonth.Has(t.Day()), c.DayOfWeek.Has(int(t.Weekday()))
	if c.EitherDay {
		return byMonth || byWeek
	}
	return byMonth && byWeek
}

// shows reports whether a clock that shows t's hour and minute shows a time of the schedule.
func (c Cron) shows(t time.Time) bool {
	return c.Minute.Has(t.Minute()) && c.Hour.Has(t.Hour()) && c.day(t)
}

// at reports whether the minute that begins at t is one of the schedule's, by the clock of t's time zone.
func (c Cron) at(t time.Time) bool {
	since, _ := t.ZoneBounds()
	if c.Running || since.IsZero() {
		return c.shows(t)
	}
	_, before := since.Add(-time.Second).In(t.Location()).Zone()
	_, now := t.Zone()
	shift := time.Duration(now-before) * time.Second
	switch {
	case shift < 0 && shift > -mostShift && t.Sub(since) < -shift:
		return false // the clock shows this for the second time
	case shift > 0 && shift < mostShift && t.Sub(since) < time.Minute:
		// The clock has just skipped the times between.
		for left := since.UTC().Add(time.Duration(before) * time.Second); shift > 0; shift -= time.Minute {
			if c.shows(left) {
				return true
			}
			left = left.Add(time.Minute)
		}
	}
	return c.shows(t)
}

// Hours are the hours of UTC after from in which the schedule has times, by the clock of zone, each with its minutes of
// UTC. They end with LastScheduleYear.
func (c Cron) Hours(zone *time.Location, from time.Time) iter.Seq2[time.Time, CronField] {
	return func(yield func(time.Time, CronField) bool) {
		hour := from.UTC().Truncate(time.Hour)
		for hour.Year() <= LastScheduleYear {
			local := hour.In(zone)
			y, m, d := local.Date()
			if day := time.Date(y, m, d, 0, 0, 0, 0, time.UTC); !c.day(day) && !c.day(day.AddDate(0, 0, 1)) &&
				!c.day(day.AddDate(0, 0, 2)) {
				hour = hour.Add(23 * time.Hour) // the next day that may match begins later than that
				continue
			}
			if minutes := c.minutes(local); minutes != 0 && !yield(hour, minutes) {
				return
			}
			hour = hour.Add(time.Hour)
		}
	}
}

// minutes are the minutes of the hour that begins at local which are the schedule's.
func (c Cron) minutes(local time.Time) (minutes CronField) {
	begin, end := local.ZoneBounds()
	if near := !begin.IsZero() && local.Sub(begin) < mostShift ||
		!end.IsZero() && end.Sub(local) < time.Hour; near {
		for n := range 60 {
			if c.at(local.Add(time.Duration(n) * time.Minute)) {
				minutes |= 1 << n
			}
		}
		return minutes
	}
	shown := local.Minute() // what the clock shows as the hour of UTC begins
	if c.Hour.Has(local.Hour()) && c.day(local) {
		minutes = c.Minute >> shown
	}
	if next := local.Add(time.Duration(60-shown) * time.Minute); shown > 0 && c.Hour.Has(next.Hour()) && c.day(next) {
		minutes |= c.Minute << (60 - shown) & (1<<60 - 1)
	}
	return minutes
}

// Next is the first time of the schedule after t, by the clock of zone; zero: there is none until LastScheduleYear.
func (c Cron) Next(zone *time.Location, t time.Time) time.Time {
	for hour, minutes := range c.Hours(zone, t) {
		if gone := t.Sub(hour); gone >= 0 {
			minutes &^= 1<<(gone/time.Minute+1) - 1
		}
		if minutes != 0 {
			return hour.Add(time.Duration(bits.TrailingZeros64(uint64(minutes))) * time.Minute)
		}
	}
	return time.Time{}
}

// zoneName is how names of time zones look. Lower-case ones are files beside them, such as localtime and posixrules.
var zoneName = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+-]*(/[A-Z][A-Za-z0-9_+-]*)*$`)

// LoadZone is the time zone with an IANA name; empty: UTC. Its error does not repeat the name.
func LoadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if zoneName.MatchString(name) && name != "Local" && name != "Factory" {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, errors.New("must be the IANA name of a time zone as it is written there, such as Europe/Berlin or UTC")
}
