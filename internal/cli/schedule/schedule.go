// Package schedule has the commands of schedules.
package schedule

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// Command is the group of schedules.
func Command(a *app.App) *cobra.Command {
	r := &app.Resource[client.Schedules]{App: a, Of: func(c *client.Client) client.Schedules { return c.Schedules },
		Group: "schedule", Arg: "NAME", ID: "a schedule's name", Sample: "nightly", Title: "Schedule",
		Reason: "why; becomes the schedule's note (default: its note stays)", Why: "holidays"}
	steer := func(
		verb, short, then string, do func(client.Schedules, context.Context, string, string) (*api.Schedule, error),
	) *cobra.Command {
		return app.Tell(r, r.Steered(verb, short), r.ReasonFlag, do, func(name string, s *api.Schedule) string {
			if s.Ended {
				return fmt.Sprintf("Schedule %s has ended. "+hasEnded, name, name)
			}
			return fmt.Sprintf("Schedule %s %s %[1]s", name, then)
		})
	}
	return a.GroupOf(
		&cobra.Command{Use: "schedule", Short: "Submit tasks again and again, by cron or at an interval"},
		createCommand(a), replaceCommand(a),
		app.List(r, &cobra.Command{
			Use: "list", Short: "List schedules", Example: "  mainstay schedule list --cluster studio",
		}, listFlags, client.Schedules.List, printSchedules),
		app.Get(r, &cobra.Command{
			Use: "get NAME", Short: "Show a schedule: its next times, and what became of its newest tasks",
			Example: "  mainstay schedule get nightly",
		}, client.Schedules.Get, printSchedule),
		steer("pause", "Stop a schedule for a while", "is paused. Resume it with: mainstay schedule resume",
			client.Schedules.Pause),
		steer("resume", "Let a paused schedule go on", "goes on. See its next times with: mainstay schedule get",
			client.Schedules.Resume),
		app.Tell(r, &cobra.Command{
			Use: "trigger NAME", Short: "Make a schedule's task now, also while it is paused",
			Example: "  mainstay schedule trigger nightly",
		}, func(c *cobra.Command, in *api.TriggerRequest) {
			c.Flags().StringVar((*string)(&in.Overlap), "overlap", "", "when the last task has not ended, for this once: "+
				"skip, buffer_one, allow_all or cancel_other (default: the schedule's)")
		}, client.Schedules.Trigger, func(_ string, t *api.Triggered) string {
			return fmt.Sprintf("Schedule %s makes task %[2]s. See it with: mainstay task get %[2]s", t.Name, t.TaskID)
		}),
		app.Delete(r, &cobra.Command{
			Use: "delete NAME", Short: "Delete a schedule; the tasks that it has made go on",
			Example: "  mainstay schedule delete nightly",
		}, "deleted", " The tasks that it has made go on.", client.Schedules.Delete))
}

func listFlags(c *cobra.Command, q *client.ScheduleQuery) {
	c.Flags().StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	c.Flags().StringVar(&q.Type, "type", "", "only of this task type")
	c.Flags().StringVar(&q.Tenant, "tenant", "", "only of this tenant")
}

func printSchedules(a *app.App, entries []api.ScheduleEntry) error {
	header := []string{"SCHEDULE", "WHEN", "TYPE", "CLUSTER", "STATE", "NEXT", "LAST", "LAST TASK"}
	return app.PrintTable(a, entries, "There are no such schedules.", header, func(e *api.ScheduleEntry) []any {
		return []any{e.Name, whenText(e.Cron, e.TimeZone, e.Interval, 0), e.Type, e.Cluster,
			stateText(e.Paused, e.Ended), e.NextTime, e.LastTime, e.LastTask}
	})
}

func stateText(paused, ended bool) string {
	switch {
	case ended:
		return "ended"
	case paused:
		return "paused"
	}
	return "active"
}

// whenText says when a schedule makes a task.
func whenText(cron, zone string, interval, offset api.Duration) string {
	switch {
	case cron != "" && zone != "":
		return cron + " (" + zone + ")"
	case cron != "":
		return cron + " (UTC)"
	case interval != 0 && offset != 0:
		return "every " + interval.String() + ", offset " + offset.String()
	case interval != 0:
		return "every " + interval.String()
	}
	return "changed by another tool: see the Temporal Web UI"
}

func printSchedule(a *app.App, s *api.Schedule) error {
	next := make([]string, 0, 3)
	for i := range min(3, len(s.NextTimes)) {
		next = append(next, timeText(&s.NextTimes[i]))
	}
	jitter := ""
	if s.Jitter != 0 {
		jitter = "up to " + s.Jitter.String()
	}
	err := a.Facts([][2]any{
		{"Schedule", s.Name}, {"State", stateText(s.Paused, s.Ended)}, {"Note", s.Note},
		{"When", whenText(s.Cron, s.TimeZone, s.Interval, s.Offset)}, {"Jitter", jitter},
		{"From", timeText(s.StartAt)}, {"Until", timeText(s.EndAt)}, {"Overlap", s.Overlap},
		{"Catchup window", s.CatchupWindow}, {"Task", s.Task.Type + " in " + s.Task.Cluster},
		{"Payload", app.OneLine(string(s.Task.Payload))},
		{"Next", next}, {"Fired", countsText(&s.Counts)},
	})
	if err != nil {
		return err
	}
	header := []string{"TASK", "STATUS", "FOR", "FIRED", "TOOK", "WHY"}
	return app.PrintBelow(a, s.Runs, header, func(run *api.ScheduleRun) []any {
		return []any{run.TaskID, run.Status, timeText(&run.ScheduledAt), run.FiredAt,
			app.Took(run.FiredAt, run.ClosedAt), run.Why}
	})
}

func timeText(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func countsText(c *api.ScheduleCount) string {
	text := strconv.FormatInt(c.Fired, 10) + " times"
	if c.Fired == 1 {
		text = "once"
	}
	if c.SkippedOverlap > 0 {
		text += fmt.Sprintf(", %d skipped because the last task had not ended", c.SkippedOverlap)
	}
	if c.MissedWindow > 0 {
		text += fmt.Sprintf(", %d missed", c.MissedWindow)
	}
	return text
}

// hasEnded is what to do about a schedule without a next time.
const hasEnded = "It has no next time. Give it a later end with: mainstay schedule replace %s … --end-at TIME"

// scheduling is the command line of `schedule create` and `schedule replace`.
type scheduling struct {
	task    app.Submission
	request api.ScheduleRequest
	paused  bool
	note    string
}

func createCommand(a *app.App) *cobra.Command {
	return schedulingCommand(a, &cobra.Command{
		Use:   "create NAME (--cron SPEC | --every DURATION) [flags] [-- COMMAND ARGUMENT…]",
		Short: "Make a schedule",
		Long: `Make a schedule. Each time is one task, whose id is the schedule's name, @ and the time, such as
nightly@20261121t030000z.

What stands after "--" is run as a command by an agent that allows it, as with "mainstay task submit".`,
		Example: `  mainstay schedule create nightly --cron "0 3 * * *" --time-zone Europe/Berlin -- ./backup.sh
  mainstay schedule create poll --every 30s --type poll --cluster studio --payload '{"n": 1}' --overlap buffer_one`,
	}, "is made", client.Schedules.Create)
}

func replaceCommand(a *app.App) *cobra.Command {
	return schedulingCommand(a, &cobra.Command{
		Use:   "replace NAME (--cron SPEC | --every DURATION) [flags] [-- COMMAND ARGUMENT…]",
		Short: "Replace a schedule: its times and its task",
		Long: `Replace a schedule: its times and its task. What is not given takes its default, but for --paused and
--note, which stay as they are. The tasks that it has made go on as they are.`,
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
	s.flags(a, command)
	command.Args = nameAndCommand
	return app.Show(a, command, func(ctx context.Context, c *client.Client, args []string) (*api.Schedule, error) {
		request, err := s.build(command, a.Stdin, args)
		if err != nil {
			return nil, err
		}
		return send(c.Schedules, ctx, request)
	}, func(a *app.App, schedule *api.Schedule) error { return printScheduled(a, schedule, done) })
}

func (s *scheduling) flags(a *app.App, command *cobra.Command) {
	flags, times := command.Flags(), &s.request.ScheduleTimes
	flags.StringVar(&times.Cron, "cron", "",
		`when: five fields (minute, hour, day of month, month, day of week), such as "0 3 * * *", as in crontab`)
	flags.StringVar(&times.TimeZone, "time-zone", "", "time zone of --cron, such as Europe/Berlin (default UTC)")
	flags.DurationVar((*time.Duration)(&times.Interval), "every", 0,
		"when: every so long, such as 30s or 6h, from --start-at on")
	flags.DurationVar((*time.Duration)(&times.Offset), "offset", 0,
		"shifts --every, counted from 1970-01-01 UTC, not from --start-at")
	flags.StringVar((*string)(&times.Overlap), "overlap", "",
		"when the last task has not ended: skip, buffer_one, allow_all or cancel_other (default skip)")
	flags.DurationVar((*time.Duration)(&times.CatchupWindow), "catchup-window", 0,
		"how late a task may be made that was due while Temporal was down (default ten times --every, 1m to 1h)")
	flags.DurationVar((*time.Duration)(&times.Jitter), "jitter", 0, "delay each task by a different time, up to this")
	app.Bounded[api.ScheduleTimes](flags, map[string]string{"every": "interval", "offset": "offset",
		"catchup-window": "catchup_window", "jitter": "jitter"})
	a.TimeFlag(flags, "start-at", "no task before this time: 2026-12-24T18:00:00Z, or +10m from now",
		func(at time.Time) { s.request.StartAt = &at })
	a.TimeFlag(flags, "end-at", "no task after this time: 2026-12-24T18:00:00Z, or +48h from now",
		func(at time.Time) { s.request.EndAt = &at })
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
func (s *scheduling) build(c *cobra.Command, stdin io.Reader, args []string) (*api.ScheduleRequest, error) {
	r := &s.request
	r.Name = args[0]
	if c.Flags().Changed("paused") {
		r.Paused = &s.paused
	}
	if c.Flags().Changed("note") {
		r.Note = &s.note
	}
	task, err := s.task.Build(stdin, args[1:], c.ArgsLenAtDash()-1)
	if err == nil {
		err = s.task.CheckPayload(task)
	}
	if err != nil {
		return nil, err
	}
	r.Task = *task
	return r, nil
}

func printScheduled(a *app.App, s *api.Schedule, done string) error {
	next := "It has no next time."
	switch {
	case s.Ended:
		next = fmt.Sprintf(hasEnded, s.Name)
	case s.Paused:
		next = "It is paused: resume it with: mainstay schedule resume " + s.Name
	case len(s.NextTimes) > 0:
		next = "Its next task is due " + timeText(&s.NextTimes[0]) + ", " + a.Ago(&s.NextTimes[0]) + "."
	}
	return a.Sayf("Schedule %s %s. %s\n", s.Name, done, next)
}
