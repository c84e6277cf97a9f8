package schedule

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
)

// scheduling is the command line of `schedule create` and `schedule replace`.
type scheduling struct {
	task    app.Submission
	times   api.ScheduleTimes
	startAt string
	endAt   string
	paused  bool
	note    string
}

func createCommand(a *app.App) *cobra.Command {
	return schedulingCommand(a, &cobra.Command{
		Use:   "create NAME (--cron SPEC | --every DURATION) [flags] [-- COMMAND ARGUMENT…]",
		Short: "Make a schedule",
		Long: `Make a schedule. Each time is one task, whose id is the schedule's name, @ and the time, such as nightly@20261121t030000z.

What stands after "--" is run as a command by an agent that allows it, as with "mainstay task submit".`,
		Example: `  mainstay schedule create nightly --cron "0 3 * * *" --time-zone Europe/Berlin -- ./backup.sh
  mainstay schedule create poll --every 30s --type poll --cluster studio --payload '{"n": 1}' --overlap buffer_one`,
	}, "is made", client.Schedules.Create)
}

func replaceCommand(a *app.App) *cobra.Command {
	return schedulingCommand(a, &cobra.Command{
		Use:   "replace NAME (--cron SPEC | --every DURATION) [flags] [-- COMMAND ARGUMENT…]",
		Short: "Replace a schedule: its times and its task",
		Long: `Replace a schedule: its times and its task. What is not given takes its default, but for --paused and --note, which stay
as they are. The tasks that it has made go on as they are.`,
		Example: `  mainstay schedule replace nightly --cron "30 2 * * *" --time-zone Europe/Berlin -- ./backup.sh`,
	}, "is replaced", func(s client.Schedules, ctx context.Context, r *api.ScheduleRequest) (*api.Schedule, error) {
		return s.Replace(ctx, r.Name, r)
	})
}

// schedulingCommand makes a command that sends a whole schedule. done says what it is afterwards.
func schedulingCommand(
	a *app.App, command *cobra.Command, done string,
	send func(client.Schedules, context.Context, *api.ScheduleRequest) (*api.Schedule, error),
) *cobra.Command {
	var s scheduling
	s.flags(command)
	command.Args = nameAndCommand
	return app.Show(a, command, func(ctx context.Context, c *client.Client, args []string) (*api.Schedule, error) {
		request, err := s.build(command, a.Stdin, a.Now(), args)
		if err != nil {
			return nil, err
		}
		return send(c.Schedules, ctx, request)
	}, func(a *app.App, schedule *api.Schedule) error { return printScheduled(a, schedule, done) })
}

func (s *scheduling) flags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&s.times.Cron, "cron", "",
		`when: five fields (minute, hour, day of month, month, day of week), such as "0 3 * * *"`)
	flags.StringVar(&s.times.TimeZone, "time-zone", "", "time zone of --cron, such as Europe/Berlin (default UTC)")
	flags.DurationVar((*time.Duration)(&s.times.Interval), "every", 0, "when: every so long, such as 30s or 6h")
	flags.DurationVar((*time.Duration)(&s.times.Offset), "offset", 0, "shifts --every")
	flags.StringVar((*string)(&s.times.Overlap), "overlap", "",
		"when the last task has not ended: skip, buffer_one, allow_all or cancel_other (default skip)")
	flags.DurationVar((*time.Duration)(&s.times.CatchupWindow), "catchup-window", 0,
		"how late a task may be made that was due while Temporal was down (default 1h)")
	flags.DurationVar((*time.Duration)(&s.times.Jitter), "jitter", 0, "delay each task by a different time, up to this")
	flags.StringVar(&s.startAt, "start-at", "", "no task before this time: 2026-12-24T18:00:00Z, or +10m from now")
	flags.StringVar(&s.endAt, "end-at", "", "no task after this time: 2026-12-24T18:00:00Z, or +48h from now")
	flags.BoolVar(&s.paused, "paused", false, "make no task until it is resumed")
	flags.StringVar(&s.note, "note", "", "a word for people")
	s.task.TaskFlags(command)
}

// nameAndCommand wants the name, and a command only after "--".
func nameAndCommand(c *cobra.Command, args []string) error {
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

func printScheduled(a *app.App, s *api.Schedule, done string) error {
	next := "It has no next time."
	switch {
	case s.Paused:
		next = "It is paused: resume it with: mainstay schedule resume " + s.Name
	case len(s.NextTimes) > 0:
		next = "Its next task is due " + timeText(&s.NextTimes[0]) + ", " + a.Ago(&s.NextTimes[0]) + "."
	}
	return a.Sayf("Schedule %s %s. %s\n", s.Name, done, next)
}
