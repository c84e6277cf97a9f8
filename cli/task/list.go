package task

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

func listCommand(a *app.App) *cobra.Command {
	var q client.TaskQuery
	var after, before string
	command := app.LimitedList(a, &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Example: `  mainstay task list --status running
  mainstay task list --label project=film --submitted-after 2h
  mainstay task list --agent render-1 --submitted-after 12h     what it ran, or is to run
  mainstay task list --text nightly
  mainstay task list --status dead_letter --cluster studio -o json`,
		Args: app.Exactly(),
	}, func(s *client.Client) *client.List[api.Task] { return s.Tasks.List(q) }, printTasks)
	app.CheckFirst(command, func() (err error) {
		for _, label := range q.Labels {
			if !strings.ContainsAny(label, "=:") {
				return app.UsageError("--label must be name=value")
			}
		}
		if q.SubmittedAfter, err = app.PastFlag("--submitted-after", after, a.Now()); err == nil {
			q.SubmittedBefore, err = app.PastFlag("--submitted-before", before, a.Now())
		}
		return err
	})
	flags := command.Flags()
	flags.StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	flags.StringVar(
		(*string)(&q.Status),
		"status",
		"",
		"only with this status: queued, running, retry_wait, review, dead_letter, completed, failed, cancelled or expired",
	)
	flags.StringVar(&q.Type, "type", "", "only of this type")
	flags.StringVar(&q.Tenant, "tenant", "", "only of this tenant")
	flags.StringVar(&q.Agent, "agent", "", "only those that this agent had, or that are pinned to it")
	flags.StringVar(&q.IDPrefix, "id", "", "only those whose id begins so")
	flags.StringVar(&q.Text, "text", "", "only those with this text in their id, type, labels, agents or cause")
	flags.StringArrayVar(&q.Labels, "label", nil, "only with this label, as name=value; of several, those with all")
	flags.StringVar(&after, "submitted-after", "",
		"only those submitted at this time or later: 2026-12-24T18:00:00Z, or 2h for two hours ago")
	flags.StringVar(&before, "submitted-before", "",
		"only those submitted before this time: 2026-12-24T18:00:00Z, or 2h for two hours ago")
	return a.Watched(command)
}

// maxNamesakes is how many tasks an error lists whose ids begin alike.
const maxNamesakes = 10

// withTask does something with the task that has an id, or else with the one whose id begins so.
func withTask[T any](
	ctx context.Context, tasks client.Tasks, id string, do func(id string) (*T, error),
) (*T, error) {
	done, err := do(id)
	if err == nil {
		return done, nil
	}
	if id, err = fullID(ctx, tasks, id, err); err != nil {
		return nil, err
	}
	return do(id)
}

// fullID is the id of the one task whose id begins with a text; missing is the error for a text that is no task's id.
func fullID(ctx context.Context, tasks client.Tasks, prefix string, missing error) (string, error) {
	if !client.IsNotFound(missing) {
		return "", missing
	}
	list := tasks.List(client.TaskQuery{IDPrefix: prefix})
	found, err := list.Take(ctx, maxNamesakes)
	switch {
	case err != nil || len(found) == 0:
		return "", missing
	case len(found) == 1:
		return found[0].ID, nil
	}
	ids := make([]string, len(found))
	for i := range found {
		ids[i] = found[i].ID
	}
	if list.More() {
		ids = append(ids, "and more")
	}
	return "", app.WithExit(
		app.ExitCode(missing),
		fmt.Errorf("several tasks have ids that begin so; give more of it:\n  %s",
			strings.Join(ids, "\n  ")),
	)
}

func printTasks(a *app.App, tasks []api.Task) error {
	return printTable(a, tasks, []string{"ENDED", "TOOK"}, func(task *api.Task) []string {
		if task.CreatedAt == nil || task.ClosedAt == nil {
			return []string{"", ""}
		}
		return []string{a.Ago(task.ClosedAt), app.Roughly(task.ClosedAt.Sub(*task.CreatedAt))}
	})
}

// printTable prints tasks; the last columns are named, and are what last makes of a task.
func printTable(a *app.App, tasks []api.Task, names []string, last func(*api.Task) []string) error {
	header := append([]string{"TASK", "TYPE", "CLUSTER", "PRIORITY", "STATUS", "AGENT", "SUBMITTED"}, names...)
	return app.PrintTable(a, tasks, "There are no such tasks.", header, func(task *api.Task) []string {
		return append([]string{task.ID, task.Type, task.Cluster, task.PriorityName, statusText(a, task), agentOf(task),
			a.Ago(task.CreatedAt)}, last(task)...)
	})
}

// statusText is the status, with the time that the task waits for.
func statusText(a *app.App, task *api.Task) string {
	text := string(task.Status)
	if task.NextAttemptAt != nil {
		text += ", " + a.Ago(task.NextAttemptAt)
	}
	return text
}

// agentOf is the agent that has the task, or had it last, else the one it is pinned to.
func agentOf(task *api.Task) string {
	if n := len(task.Attempts); n > 0 && task.Attempts[n-1].Outcome == fleet.AttemptRunning {
		return task.Attempts[n-1].AgentID
	}
	if n := len(task.RanOn); n > 0 {
		return task.RanOn[n-1]
	}
	return task.Agent
}
