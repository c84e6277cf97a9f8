package fleet_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
)

func TestParseCron(t *testing.T) {
	t.Parallel()
	all := func(from, to int) fleet.CronField { return fleet.CronField{{From: from, To: to, Step: 1}} }
	everyDay := func(minute, hour fleet.CronField) fleet.Cron {
		return fleet.Cron{Minute: minute, Hour: hour, DayOfMonth: all(1, 31), Month: all(1, 12), DayOfWeek: all(0, 6)}
	}
	for text, want := range map[string]fleet.Cron{
		"0 3 * * *": everyDay(all(0, 0), all(3, 3)),
		"  @daily ": everyDay(all(0, 0), all(0, 0)),
		"*/15 8-18/2,22 * * *": everyDay(fleet.CronField{{From: 0, To: 59, Step: 15}},
			fleet.CronField{{From: 8, To: 18, Step: 2}, {From: 22, To: 22, Step: 1}}),
		"5/20 0 * * *": everyDay(fleet.CronField{{From: 5, To: 59, Step: 20}}, all(0, 0)),
		"0\t0 1 JAN,jul Sun-tue": {Minute: all(0, 0), Hour: all(0, 0), DayOfMonth: all(1, 1),
			Month: fleet.CronField{{From: 1, To: 1, Step: 1}, {From: 7, To: 7, Step: 1}}, DayOfWeek: all(0, 2)},
		"0 0 29 2 *": {Minute: all(0, 0), Hour: all(0, 0), DayOfMonth: all(29, 29), Month: all(2, 2),
			DayOfWeek: all(0, 6)},
		"0 0 31 2,12 *": {Minute: all(0, 0), Hour: all(0, 0), DayOfMonth: all(31, 31),
			Month: fleet.CronField{{From: 2, To: 2, Step: 1}, {From: 12, To: 12, Step: 1}}, DayOfWeek: all(0, 6)},
		"0 0 30 2 fri": {Minute: all(0, 0), Hour: all(0, 0), DayOfMonth: all(30, 30), Month: all(2, 2),
			DayOfWeek: all(5, 5)},
		"0 0 * * 7": {Minute: all(0, 0), Hour: all(0, 0), DayOfMonth: all(1, 31), Month: all(1, 12),
			DayOfWeek: all(7, 7)},
	} {
		got, err := fleet.ParseCron(text)
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
		"0 24 * * *":                            "field 2 (hour) must hold numbers from 0 to 23",
		"0 0 0 * *":                             "field 3 (day of month) must hold numbers from 1 to 31",
		"0 0 * hunter2 *":                       "field 4 (month) must hold numbers from 1 to 12 or names such as feb",
		"0 0 * * mo":                            "field 5 (day of week) must hold numbers from 0 to 7 or names such as mon",
		"0 0 * * 8":                             "field 5",
		"*/0 0 * * *":                           "field 1 (minute) has a step",
		"*/hunter2 0 * * *":                     "field 1 (minute) has a step",
		"0 5-3 * * *":                           "field 2 (hour) has a range that runs backwards",
		"0 1,,2 * * *":                          "field 2",
		"0 -1 * * *":                            "field 2",
		"0 0 30 feb *":                          "never fire",
		"0 0 31 4,6,9-11/2 *":                   "never fire",
		"@reboot":                               "5 fields",
		"CRON_TZ=UTC 0 0 * * *":                 "has 6",
		strings.Repeat("0,", 120) + "0 * * * *": "at most 200 characters",
	} {
		_, err := fleet.ParseCron(text)
		require.ErrorContains(t, err, says, text)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// When both days are restricted, either may match.
func TestCronDays(t *testing.T) {
	t.Parallel()
	for text, calendars := range map[string]int{"0 0 1 * *": 1, "0 0 * * 1": 1, "0 0 1-31 * 1": 1, "0 0 1 * *,1": 1,
		"0 0 13 * 5": 2, "0 0 */2 * 1": 2} {
		c, err := fleet.ParseCron(text)
		require.NoError(t, err)
		require.Len(t, c.Calendars(), calendars, text)
	}
	c, err := fleet.ParseCron("0 0 13 * 5")
	require.NoError(t, err)
	require.Equal(t, fleet.CronField{{From: 0, To: 6, Step: 1}}, c.Calendars()[0].DayOfWeek)
	require.Equal(t, c.DayOfMonth, c.Calendars()[0].DayOfMonth)
	require.Equal(t, fleet.CronField{{From: 1, To: 31, Step: 1}}, c.Calendars()[1].DayOfMonth)
	require.Equal(t, c.DayOfWeek, c.Calendars()[1].DayOfWeek)
}
