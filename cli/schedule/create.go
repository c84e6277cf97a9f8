package schedule

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

// scheduling is the command line of `schedule create` and `schedule replace`.
type scheduling struct {
	task     app.Submission
	times    api.ScheduleTimes
	overlap  string
	interval time.Duration
	offset   time.Duration
	catchup  time.Duration
	jitter   time.Duration
	startAt  string
	endAt    string
	paused   bool
	note     string
}

func createCommand(a *app.App) *cobra.Command {
	var s scheduling
	command := &cobra.Command{
		Use:   "create NAME (--cron SPEC | --every DURATION) [flags] [-- COMMAND ARGUMENT…]",
		Short: "Make a schedule",
		Long: `Make a schedule. Each time is one task, whose id is the schedule's name, @ and the time, such as nightly@20261121t030000z.

What stands after "--" is run as a command by an agent that allows it, as with "mainstay task submit".`,
		Example: `  mainstay schedule create nightly --cron "0 3 * * *" --time-zone Europe/Berlin -- ./backup.sh
  mainstay schedule create poll --every 30s --type poll --cluster studio --payload '{"n": 1}' --overlap buffer_one`,
		Args: s.args,
		RunE: func(c *cobra.Command, args []string) error {
			return sendSchedule(a, c, &s, args, "is made", func(s *client.Client,
				r *api.ScheduleRequest) (*api.Schedule, error) {
				return s.CreateSchedule(c.Context(), r)
			})
		},
	}
	s.flags(command)
	a.OutputFlag(command)
	return command
}

func replaceCommand(a *app.App) *cobra.Command {
	var s scheduling
	command := &cobra.Command{
		Use:   "replace NAME (--cron SPEC | --every DURATION) [flags] [-- COMMAND ARGUMENT…]",
		Short: "Replace a schedule: its times and its task",
		Long: `Replace a schedule: its times and its task. What is not given takes its default, but for --paused and --note, which stay
as they are. The tasks that it has made go on as they are.`,
		Example: `  mainstay schedule replace nightly --cron "30 2 * * *" --time-zone Europe/Berlin -- ./backup.sh`,
		Args:    s.args,
		RunE: func(c *cobra.Command, args []string) error {
			return sendSchedule(a, c, &s, args, "is replaced",
				func(s *client.Client, r *api.ScheduleRequest) (*api.Schedule, error) {
					return s.ReplaceSchedule(c.Context(), args[0], r)
				})
		},
	}
	s.flags(command)
	a.OutputFlag(command)
	return command
}

func (s *scheduling) flags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&s.times.Cron, "cron", "",
		`when: five fields (minute, hour, day of month, month, day of week), such as "0 3 * * *"`)
	flags.StringVar(&s.times.TimeZone, "time-zone", "", "time zone of --cron, such as Europe/Berlin (default UTC)")
	flags.DurationVar(&s.interval, "every", 0, "when: every so long, such as 30s or 6h")
	flags.DurationVar(&s.offset, "offset", 0, "shifts --every")
	flags.StringVar(&s.overlap, "overlap", "",
		"when the last task has not ended: skip, buffer_one, allow_all or cancel_other (default skip)")
	flags.DurationVar(&s.catchup, "catchup-window", 0,
		"how late a task may be made that was due while Temporal was down (default 1h)")
	flags.DurationVar(&s.jitter, "jitter", 0, "delay each task by a different time, up to this")
	flags.StringVar(&s.startAt, "start-at", "", "no task before this time: 2026-12-24T18:00:00Z, or +10m from now")
	flags.StringVar(&s.endAt, "end-at", "", "no task after this time: 2026-12-24T18:00:00Z, or +48h from now")
	flags.BoolVar(&s.paused, "paused", false, "make no task until it is resumed")
	flags.StringVar(&s.note, "note", "", "a word for people")
	s.task.TaskFlags(command)
}

// args wants the name, and a command only after "--".
func (s *scheduling) args(c *cobra.Command, args []string) error {
	names := len(args)
	if dash := c.ArgsLenAtDash(); dash >= 0 {
		names = dash
	}
	if names != 1 {
		return fmt.Errorf("needs a schedule's name, got %d arguments before a command after --", names)
	}
	return nil
}

// build checks the command line.
func (s *scheduling) build(
	c *cobra.Command, stdin io.Reader, now time.Time, args []string,
) (*api.ScheduleRequest, error) {
	r := &api.ScheduleRequest{Name: args[0], ScheduleTimes: s.times}
	r.Interval, r.Offset, r.Overlap = fleet.Duration(s.interval), fleet.Duration(s.offset), fleet.Overlap(s.overlap)
	r.CatchupWindow, r.Jitter = fleet.Duration(s.catchup), fleet.Duration(s.jitter)
	for _, at := range []struct {
		flag, text string
		into       **time.Time
	}{{"--start-at", s.startAt, &r.StartAt}, {"--end-at", s.endAt, &r.EndAt}} {
		if at.text == "" {
			continue
		}
		t, err := app.TimeFlag(at.flag, at.text, now)
		if err != nil {
			return nil, err
		}
		*at.into = &t
	}
	if c.Flags().Changed("paused") {
		r.Paused = &s.paused
	}
	if c.Flags().Changed("note") {
		r.Note = &s.note
	}
	task, err := s.task.Build(stdin, now, args[1:], c.ArgsLenAtDash()-1)
	if err != nil {
		return nil, err
	}
	r.Task = *task
	return r, nil
}

func sendSchedule(
	a *app.App, c *cobra.Command, s *scheduling, args []string, done string,
	send func(*client.Client, *api.ScheduleRequest) (*api.Schedule, error),
) error {
	request, err := s.build(c, a.Stdin, a.Now(), args)
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	schedule, err := send(client.Client, request)
	if err != nil {
		return err
	}
	return printScheduled(a, client.Answer, schedule, done)
}

func printScheduled(a *app.App, raw json.RawMessage, s *api.Schedule, done string) error {
	return a.Print(raw, func() error {
		next := "It has no next time."
		switch {
		case s.Paused:
			next = "It is paused: resume it with: mainstay schedule resume " + s.Name
		case len(s.NextTimes) > 0:
			next = "Its next task is due " + s.NextTimes[0].UTC().Format(time.RFC3339) + ", " + a.Ago(&s.NextTimes[0]) +
				"."
		}
		_, err := fmt.Fprintf(a.Stdout, "Schedule %s %s. %s\n", s.Name, done, next)
		return err
	})
}
