// Package schedule has the commands of schedules.
package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

// Command is the group of schedules.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "schedule", Short: "Submit tasks again and again, by cron or at an interval"}
	a.ServerFlag(command)
	command.AddCommand(
		createCommand(a), replaceCommand(a), listCommand(a), getCommand(a),
		pauseCommand(a, "pause", "Stop a schedule for a while",
			"is paused. Resume it with: mainstay schedule resume %s", (*client.Client).PauseSchedule),
		pauseCommand(a, "resume", "Let a paused schedule go on",
			"goes on. See its next times with: mainstay schedule get %s", (*client.Client).ResumeSchedule),
		triggerCommand(a), deleteCommand(a))
	return command
}

func listCommand(a *app.App) *cobra.Command {
	var q client.ScheduleQuery
	var limit int
	command := &cobra.Command{
		Use: "list", Short: "List schedules", Args: app.Exactly(),
		Example: "  mainstay schedule list --cluster studio",
		RunE: func(c *cobra.Command, _ []string) error {
			list := func(s *client.Client) *client.List[api.ScheduleEntry] { return s.Schedules(q) }
			return app.PrintList(c, a, list, limit, printSchedules)
		},
	}
	flags := command.Flags()
	flags.StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&q.Type, "type", "", "only of this task type")
	flags.StringVar(&q.Tenant, "tenant", "", "only of this tenant")
	app.LimitFlag(command, &limit)
	a.OutputFlag(command)
	return command
}

func printSchedules(a *app.App, entries []api.ScheduleEntry) error {
	if len(entries) == 0 {
		_, err := fmt.Fprintln(a.Stdout, "There are no such schedules.")
		return err
	}
	t := app.NewTable(a.Stdout, "SCHEDULE", "WHEN", "TYPE", "CLUSTER", "STATE", "NEXT", "LAST", "LAST TASK")
	for i := range entries {
		e := &entries[i]
		state := "active"
		if e.Paused {
			state = "paused"
		}
		t.Row(e.Name, whenText(e.Cron, e.TimeZone, e.Interval, 0), e.Type, e.Cluster, state, a.Ago(e.NextTime),
			a.Ago(e.LastTime), e.LastTask)
	}
	return t.Flush()
}

// whenText says when a schedule makes a task.
func whenText(cron, zone string, interval, offset fleet.Duration) string {
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

func getCommand(a *app.App) *cobra.Command {
	return app.Show(a, &cobra.Command{
		Use: "get NAME", Short: "Show a schedule: its next times, and what became of its newest tasks",
		Example: "  mainstay schedule get nightly", Args: app.Exactly("a schedule's name"),
	}, (*client.Client).Schedule, printSchedule)
}

func printSchedule(a *app.App, raw json.RawMessage, s *api.Schedule) error {
	return a.Print(raw, func() error {
		t := app.NewTable(a.Stdout)
		state := "active"
		if s.Paused {
			state = "paused"
		}
		next := make([]string, 0, 3)
		for i := range min(3, len(s.NextTimes)) {
			next = append(next, s.NextTimes[i].UTC().Format(time.RFC3339))
		}
		jitter := ""
		if s.Jitter != 0 {
			jitter = "up to " + s.Jitter.String()
		}
		t.Facts([][2]string{
			{"Schedule", s.Name}, {"State", state}, {"Note", s.Note},
			{"When", whenText(s.Cron, s.TimeZone, s.Interval, s.Offset)}, {"Jitter", jitter},
			{"From", timeText(s.StartAt)}, {"Until", timeText(s.EndAt)}, {"Overlap", string(s.Overlap)},
			{"Catchup window", s.CatchupWindow.String()},
			{"Task", s.Task.Type + " in " + s.Task.Cluster}, {"Next", strings.Join(next, ", ")},
			{"Fired", countsText(&s.Counts)},
		})
		if err := t.Flush(); err != nil || len(s.Runs) == 0 {
			return err
		}
		fmt.Fprintln(a.Stdout)
		t = app.NewTable(a.Stdout, "TASK", "STATUS", "FOR", "FIRED", "TOOK", "WHY")
		for i := range s.Runs {
			run := &s.Runs[i]
			var took string
			if run.FiredAt != nil && run.ClosedAt != nil {
				took = app.Roughly(max(0, run.ClosedAt.Sub(*run.FiredAt)))
			}
			t.Row(run.TaskID, string(run.Status), run.ScheduledAt.UTC().Format(time.RFC3339), a.Ago(run.FiredAt), took,
				run.Why)
		}
		return t.Flush()
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

func pauseCommand(
	a *app.App, action, short, then string,
	change func(s *client.Client, ctx context.Context, name, reason string) (*api.Schedule, error),
) *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use: action + " NAME", Short: short, Args: app.Exactly("a schedule's name"),
		Example: "  mainstay schedule " + action + ` nightly --reason "holidays"`,
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			if _, err := change(client.Client, c.Context(), args[0], reason); err != nil {
				return err
			}
			return a.Print(client.Answer, func() error {
				_, err := fmt.Fprintf(a.Stdout, "Schedule %s "+then+"\n", args[0], args[0])
				return err
			})
		},
	}
	command.Flags().StringVar(&reason, "reason", "", "why; becomes the schedule's note")
	a.OutputFlag(command)
	return command
}

func triggerCommand(a *app.App) *cobra.Command {
	var overlap string
	command := &cobra.Command{
		Use:     "trigger NAME",
		Short:   "Make a schedule's task now, also while it is paused",
		Args:    app.Exactly("a schedule's name"),
		Example: "  mainstay schedule trigger nightly",
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			triggered, err := client.TriggerSchedule(c.Context(), args[0],
				api.TriggerRequest{Overlap: fleet.Overlap(overlap)})
			if err != nil {
				return err
			}
			return a.Print(client.Answer, func() error {
				_, err := fmt.Fprintf(a.Stdout, "Schedule %s makes task %s. See it with: mainstay task get %s\n",
					triggered.Name, triggered.TaskID, triggered.TaskID)
				return err
			})
		},
	}
	command.Flags().StringVar(&overlap, "overlap", "",
		"when the last task has not ended, for this once: skip, buffer_one, allow_all or cancel_other (default: the schedule's)")
	a.OutputFlag(command)
	return command
}

func deleteCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a schedule; the tasks that it has made go on",
		Args:    app.Exactly("a schedule's name"),
		Example: "  mainstay schedule delete nightly",
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			if err := client.DeleteSchedule(c.Context(), args[0]); err != nil {
				return err
			}
			return a.Print(map[string]string{"deleted": args[0]}, func() error {
				_, err := fmt.Fprintf(a.Stdout, "Schedule %s is deleted. The tasks that it has made go on.\n", args[0])
				return err
			})
		},
	}
	a.OutputFlag(command)
	return command
}
