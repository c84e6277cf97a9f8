package schedule_test

import (
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the table below holds on every machine

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/schedule"
)

// field has these values.
func field(values ...int) (f schedule.CronField) {
	for _, n := range values {
		f |= 1 << n
	}
	return f
}

func TestParseCron(t *testing.T) {
	t.Parallel()
	month := field(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	week := func(days ...int) schedule.Cron {
		return schedule.Cron{Minute: field(0), Hour: field(0), DayOfMonth: schedule.EveryDayOfMonth, Month: month,
			DayOfWeek: field(days...)}
	}
	daily := func(minute, hour schedule.CronField, running bool) schedule.Cron {
		return schedule.Cron{Minute: minute, Hour: hour, DayOfMonth: schedule.EveryDayOfMonth, Month: month,
			DayOfWeek: schedule.EveryDayOfWeek, Running: running}
	}
	for text, want := range map[string]schedule.Cron{
		"0 3 * * *":            daily(field(0), field(3), false),
		"  @Daily ":            daily(field(0), field(0), false),
		"*/15 8-18/2,22 * * *": daily(field(0, 15, 30, 45), field(8, 10, 12, 14, 16, 18, 22), true),
		"5/20 0 * * *":         daily(field(5, 25, 45), field(0), false),
		"*/60 */24 * * *":      daily(field(0), field(0), true),
		"0 */6 * * *":          daily(field(0), field(0, 6, 12, 18), true),
		"0\t0 1 JAN,jul Sun-tue": {Minute: field(0), Hour: field(0), DayOfMonth: field(1), Month: field(1, 7),
			DayOfWeek: field(0, 1, 2), EitherDay: true},
		"0 0 */10 * mon": {Minute: field(0), Hour: field(0), DayOfMonth: field(1, 11, 21, 31), Month: month,
			DayOfWeek: field(1)},
		"0 0 30 2 fri": {Minute: field(0), Hour: field(0), DayOfMonth: field(30), Month: field(2), DayOfWeek: field(5),
			EitherDay: true},
		"0 0 * * 7":          week(0),
		"0 0 * * 0,7":        week(0),
		"0 0 * * 5-7":        week(5, 6, 0),
		"0 0 * * 5-7/2":      week(5, 0),
		"0 0 * * 1/2":        week(1, 3, 5),
		"0 0 * * 7/2":        week(0),
		"0 0 * * */2":        week(0, 2, 4, 6),
		"0 0 * * 0-7":        week(0, 1, 2, 3, 4, 5, 6),
		"0 0 * * 3,7":        week(3, 0),
		"0 0 * * FRI-sun":    week(5, 6, 0),
		"0 0 * * sun-sun":    week(0),
		"0 0 * * sat,Sun":    week(6, 0),
		"0 0 * * sun-sat":    week(0, 1, 2, 3, 4, 5, 6),
		"00 03 * * 07":       {Minute: field(0), Hour: field(3), DayOfMonth: schedule.EveryDayOfMonth, Month: month, DayOfWeek: field(0)},
		"0 0 29 2 *":         {Minute: field(0), Hour: field(0), DayOfMonth: field(29), Month: field(2), DayOfWeek: schedule.EveryDayOfWeek},
		"0 0 31 2,12 *":      {Minute: field(0), Hour: field(0), DayOfMonth: field(31), Month: field(2, 12), DayOfWeek: schedule.EveryDayOfWeek},
		"0 0 30 1-3/2,feb *": {Minute: field(0), Hour: field(0), DayOfMonth: field(30), Month: field(1, 2, 3), DayOfWeek: schedule.EveryDayOfWeek},
	} {
		got, err := schedule.ParseCron(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestCronMistakesAreNamed(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                                      "5 fields",
		"hunter2":                               "5 fields (minute, hour, day of month, month, day of week), and has 1",
		"0 0 3 * * *":                           "has 6",
		"60 0 * * *":                            "field 1 (minute) must hold numbers from 0 to 59",
		"+5 0 * * *":                            "field 1 (minute) must hold numbers",
		"? 0 * * *":                             "field 1 (minute) must hold numbers",
		"0 24 * * *":                            "field 2 (hour) must hold numbers from 0 to 23",
		"0 0 0 * *":                             "field 3 (day of month) must hold numbers from 1 to 31",
		"0 0 L * *":                             "field 3 (day of month) must hold numbers from 1 to 31",
		"0 0 * hunter2 *":                       "field 4 (month) must hold numbers from 1 to 12 or names such as feb",
		"0 0 * * mo":                            "field 5 (day of week) must hold numbers from 0 to 7 or names such as mon",
		"0 0 * * 8":                             "field 5",
		"0 0 * * 5-0":                           "field 5 (day of week) has a range that runs backwards: Sunday at the end of a range is 7",
		"0 0 * * sat-mon":                       "field 5 (day of week) has a range that runs backwards",
		"*/0 0 * * *":                           "field 1 (minute) has a step that is not 1 to 60",
		"*/61 0 * * *":                          "field 1 (minute) has a step that is not 1 to 60",
		"*/hunter2 0 * * *":                     "field 1 (minute) has a step",
		"1/2/3 0 * * *":                         "field 1 (minute) has a step",
		"0 5-3 * * *":                           "field 2 (hour) has a range that runs backwards",
		"0 1,,2 * * *":                          "field 2",
		"0 -1 * * *":                            "field 2",
		"0 0 30 feb *":                          "never fire",
		"0 0 31 4,6,9-11/2 *":                   "never fire",
		"0 0 30 2 */2":                          "never fire",
		"@reboot":                               "5 fields",
		"@every 5m":                             "give interval",
		"CRON_TZ=UTC 0 0 * * *":                 "give time_zone",
		strings.Repeat("0,", 120) + "0 * * * *": "at most 200 characters",
	} {
		_, err := schedule.ParseCron(text)
		require.ErrorContains(t, err, says, text)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestTimeZonesAreNamedAsIANADoes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "UTC", "Etc/GMT+5", "Europe/Berlin", "America/Argentina/Buenos_Aires", "EST5EDT",
		"America/Port-au-Prince", "Asia/Kolkata"} {
		_, err := schedule.LoadZone(name)
		require.NoError(t, err, name)
	}
	for _, name := range []string{"Local", "local", "LOCAL", "localtime", "posixrules", "Factory", " ", "Europe",
		"europe/berlin", "Europe/Berlin ", "Europe//Berlin", "./Europe/Berlin", "../etc/passwd", "/etc/localtime",
		"posix/Europe/Berlin", "right/UTC", "Mars/Olympus", "UTC+2", "+02:00", "zone.tab", "Europe/Berlin\x00"} {
		_, err := schedule.LoadZone(name)
		require.ErrorContains(t, err, "IANA name", name)
	}
}

// times are the next times after a moment of UTC, as the clock of the zone shows them, with its offset.
func times(t *testing.T, expression, zone, after string, n int) []string {
	t.Helper()
	c, err := schedule.ParseCron(expression)
	require.NoError(t, err, expression)
	location, err := schedule.LoadZone(zone)
	require.NoError(t, err, zone)
	at, err := time.Parse("2006-01-02T15:04", after)
	require.NoError(t, err)
	list := make([]string, n)
	for i := range list {
		at = c.Next(location, at)
		list[i] = at.In(location).Format("02T15:04Z07:00")
	}
	return list
}

// TestCronThroughChangesOfTheClock has, of twenty zones, what Debian's cron does, written by hand.
func TestCronThroughChangesOfTheClock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, cron, after, want string }{
		// Forward at 02:00 to 03:00, back at 03:00 to 02:00.
		{"Europe/Berlin", "30 2 * * *", "2027-03-27T00:00", "27T02:30+01:00 28T03:00+02:00 29T02:30+02:00"},
		{"Europe/Berlin", "30 2 * * *", "2026-10-24T00:00", "24T02:30+02:00 25T02:30+02:00 26T02:30+01:00"},
		{"Europe/Berlin", "0,30 2 * * *", "2027-03-27T02:00", "28T03:00+02:00 29T02:00+02:00"},
		{"Europe/Berlin", "0 2,3 * * *", "2027-03-27T23:00", "28T03:00+02:00 29T02:00+02:00 29T03:00+02:00"},
		{"Europe/Berlin", "0 3 * * *", "2027-03-27T23:00", "28T03:00+02:00 29T03:00+02:00"},
		{"Europe/Berlin", "30 2 28 3 *", "2027-01-01T00:00", "28T03:00+02:00 28T02:30+02:00"},
		{"Europe/Berlin", "30 2 * * sun", "2027-03-27T00:00", "28T03:00+02:00 04T02:30+02:00"},
		{"Europe/Berlin", "*/30 * * * *", "2026-10-24T23:59", "25T02:00+02:00 25T02:30+02:00 25T02:00+01:00 25T02:30+01:00 25T03:00+01:00"},
		{"Europe/Berlin", "*/30 * * * *", "2027-03-28T00:29", "28T01:30+01:00 28T03:00+02:00 28T03:30+02:00"},
		{"Europe/Berlin", "15 * * * *", "2026-10-24T23:59", "25T02:15+02:00 25T02:15+01:00 25T03:15+01:00"},
		{"Europe/Berlin", "*/20 2 * * *", "2026-10-24T23:59", "25T02:00+02:00 25T02:20+02:00 25T02:40+02:00 25T02:00+01:00 25T02:20+01:00 25T02:40+01:00 26T02:00+01:00"},
		{"Europe/Berlin", "*/20 2 * * *", "2027-03-27T12:00", "29T02:00+02:00"},
		{"Europe/Berlin", "0-59/30 0-23 * * *", "2026-10-24T23:59", "25T02:00+02:00 25T02:30+02:00 25T03:00+01:00"},
		{"Europe/London", "30 1 * * *", "2027-03-27T12:00", "28T02:00+01:00 29T01:30+01:00"},
		{"Europe/London", "30 1 * * *", "2026-10-24T12:00", "25T01:30+01:00 26T01:30Z"},
		{"Europe/Dublin", "30 1 * * *", "2027-03-27T12:00", "28T02:00+01:00 29T01:30+01:00"},
		{"Europe/Dublin", "30 1 * * *", "2026-10-24T12:00", "25T01:30+01:00 26T01:30Z"},
		{"Europe/Lisbon", "15 1 * * *", "2027-03-27T12:00", "28T02:00+01:00 29T01:15+01:00"},
		{"Europe/Chisinau", "30 2 * * *", "2027-03-27T12:00", "28T03:00+03:00 29T02:30+03:00"},
		{"America/New_York", "30 2 * * *", "2027-03-13T12:00", "14T03:00-04:00 15T02:30-04:00"},
		{"America/New_York", "30 1 * * *", "2026-10-31T12:00", "01T01:30-04:00 02T01:30-05:00"},
		{"America/New_York", "*/30 * * * *", "2026-11-01T05:00", "01T01:30-04:00 01T01:00-05:00 01T01:30-05:00 01T02:00-05:00"},
		{"America/Los_Angeles", "0 2 * * mon-sun", "2027-03-13T12:00", "14T03:00-07:00 15T02:00-07:00"},
		{"America/St_Johns", "30 2 * * *", "2027-03-13T12:00", "14T03:00-02:30 15T02:30-02:30"},
		{"America/St_Johns", "30 1 * * *", "2026-10-31T12:00", "01T01:30-02:30 02T01:30-03:30"},
		// Forward at 24:00, so that the day has no midnight.
		{"Africa/Cairo", "0 0 * * *", "2027-04-28T12:00", "29T00:00+02:00 30T01:00+03:00 01T00:00+03:00"},
		{"Africa/Cairo", "@daily", "2026-10-28T12:00", "29T00:00+03:00 30T00:00+02:00 31T00:00+02:00"},
		{"Africa/Cairo", "30 23 * * *", "2026-10-28T22:00", "29T23:30+03:00 30T23:30+02:00"},
		{"Africa/Cairo", "0 0 30 4 *", "2027-01-01T12:00", "30T01:00+03:00"},
		{"Asia/Beirut", "0 0 * * *", "2027-03-26T12:00", "27T00:00+02:00 28T01:00+03:00 29T00:00+03:00"},
		{"Asia/Beirut", "0 0 * * sun", "2027-03-26T12:00", "28T01:00+03:00 04T00:00+03:00"},
		{"Asia/Beirut", "15 23 * * *", "2026-10-23T12:00", "23T23:15+03:00 24T23:15+03:00 25T23:15+02:00"},
		{"America/Santiago", "0 0 * * *", "2026-09-05T12:00", "06T01:00-03:00 07T00:00-03:00"},
		{"America/Santiago", "30 23 * * *", "2027-04-03T12:00", "03T23:30-03:00 04T23:30-04:00"},
		{"America/Havana", "0 0 * * *", "2027-03-13T12:00", "14T01:00-04:00 15T00:00-04:00"},
		{"America/Havana", "0 0 * * *", "2026-10-31T12:00", "01T00:00-04:00 02T00:00-05:00"},
		{"America/Asuncion", "0 0 * * *", "2026-10-03T12:00", "04T00:00-03:00 05T00:00-03:00"},
		// By half an hour, by two hours, and in the other hemisphere.
		{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00", "04T02:30+11:00 05T02:15+11:00"},
		{"Australia/Lord_Howe", "45 1 * * *", "2027-04-03T00:00", "04T01:45+11:00 05T01:45+10:30"},
		{"Australia/Lord_Howe", "*/15 * * * *", "2027-04-03T14:30", "04T01:45+11:00 04T01:30+10:30 04T01:45+10:30 04T02:00+10:30"},
		{"Antarctica/Troll", "30 2 * * *", "2027-03-27T12:00", "28T03:00+02:00 29T02:30+02:00"},
		{"Antarctica/Troll", "30 1 * * *", "2026-10-24T12:00", "25T01:30+02:00 26T01:30Z"},
		{"Australia/Sydney", "30 2 * * *", "2026-10-03T00:00", "04T03:00+11:00 05T02:30+11:00"},
		{"Pacific/Auckland", "30 2 * * *", "2027-04-03T00:00", "04T02:30+13:00 05T02:30+12:00"},
		{"Pacific/Chatham", "0 3 * * *", "2026-09-26T00:00", "27T03:45+13:45 28T03:00+13:45"},
		{"Africa/Casablanca", "30 2 * * *", "2027-02-06T12:00", "07T02:30+01:00 08T02:30Z"},
		// Without changes, in quarters of an hour, and a day that was left out.
		{"Asia/Kolkata", "0 9 * * mon-fri", "2026-11-27T12:00", "30T09:00+05:30 01T09:00+05:30"},
		{"Asia/Kathmandu", "*/20 9 * * *", "2026-11-27T12:00", "28T09:00+05:45 28T09:20+05:45 28T09:40+05:45 29T09:00+05:45"},
		{"Asia/Tokyo", "0 0 1 * *", "2026-11-27T12:00", "01T00:00+09:00 01T00:00+09:00"},
		{"UTC", "0 3 * * 7", "2026-11-27T12:00", "29T03:00Z 06T03:00Z"},
		{"Pacific/Apia", "0 9 * * *", "2011-12-28T12:00", "28T09:00-10:00 29T09:00-10:00 31T09:00+14:00"},
		{"Pacific/Apia", "0 0 31 12 *", "2011-12-20T12:00", "31T00:00+14:00 31T00:00+14:00"},
	} {
		want := strings.Fields(c.want)
		require.Equal(t, want, times(t, c.cron, c.zone, c.after, len(want)), "%s in %s", c.cron, c.zone)
	}
}

func TestCronDays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0 9 13 * fri":   "04 11 13 18 25", // either
		"0 9 */2 * mon":  "07 21 11 25 01", // both, as a field begins with *
		"0 9 1-7 * */6":  "05 06 02 03 06", // both
		"0 9 *,13 * fri": "04 11 18 25 01", // both: * names all days
		"0 9 1-31 * fri": "01 02 03 04 05", // either, as no field begins with *
		"0 9 29 2 */7":   "29 29",          // Sundays alone: in 2032 and 2060
	} {
		days := strings.Fields(want)
		for i, at := range times(t, text, "", "2026-11-30T12:00", len(days)) {
			require.Equal(t, days[i], at[:2], "%s: time %d", text, i)
		}
	}
	c, err := schedule.ParseCron("0 9 29 2 */7")
	require.NoError(t, err)
	require.True(t, c.Next(time.UTC, time.Date(2089, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero(), "there is none until 2100")
}

// TestCronAsAnotherLibraryHasIt compares random expressions with a library that another has written, in UTC, and
// without steps of all days, which it takes for another rule.
func TestCronAsAnotherLibraryHasIt(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewSource(7))
	begin := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	end := begin.AddDate(5, 0, 0)
	for range 1000 {
		text := randomCron(r)
		theirs, err := cron.ParseStandard(text)
		require.NoError(t, err, text)
		ours, err := schedule.ParseCron(text)
		if err != nil {
			require.ErrorContains(t, err, "never fire", text)
			require.True(t, theirs.Next(begin).IsZero(), text)
			continue
		}
		at := begin
		for n := 0; n < 900 && at.Before(end); n++ {
			want := theirs.Next(at)
			if want.IsZero() { // it looks five years ahead
				require.True(t, ours.Next(time.UTC, at).After(end), text)
				break
			}
			require.Equal(t, want, ours.Next(time.UTC, at), "%s after %s", text, at)
			if at = want; n > 300 { // five years, of those that fire often too
				at = at.Add(time.Duration(r.Int63n(int64(90 * 24 * time.Hour)))).Truncate(time.Second)
			}
		}
	}
}

func randomCron(r *rand.Rand) string {
	item := func(min, max int, days bool) string {
		from := min + r.Intn(max-min+1)
		to := from + r.Intn(max-from+1)
		step := 1 + r.Intn(max-min)
		switch r.Intn(6) {
		case 0:
			return strconv.Itoa(from)
		case 1:
			return fmt.Sprintf("%d-%d", from, to)
		case 2:
			return fmt.Sprintf("%d-%d/%d", from, to, step)
		case 3:
			return fmt.Sprintf("%d/%d", from, step)
		case 4:
			if !days {
				return fmt.Sprintf("*/%d", step)
			}
		}
		return strconv.Itoa(to)
	}
	field := func(min, max int, days bool) string {
		if r.Intn(3) == 0 {
			return "*"
		}
		items := make([]string, 1+r.Intn(3))
		for i := range items {
			items[i] = item(min, max, days)
		}
		return strings.Join(items, ",")
	}
	return strings.Join([]string{field(0, 59, false), field(0, 23, false), field(1, 31, true), field(1, 12, false),
		field(0, 6, true)}, " ")
}
