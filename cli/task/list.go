package task

import (
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
	flags.StringVar((*string)(&q.Status), "status", "",
		"only with this status: queued, running, retry_wait, review, dead_letter, completed, failed, cancelled or expired")
	flags.StringVar(&q.Type, "type", "", "only of this type")
	flags.StringVar(&q.Tenant, "tenant", "", "only of this tenant")
	flags.StringVar(&q.Agent, "agent", "", "only those pinned to this agent")
	flags.StringArrayVar(&q.Labels, "label", nil, "only with this label, as name=value; of several, those with all")
	flags.StringVar(&after, "submitted-after", "",
		"only those submitted at this time or later: 2026-12-24T18:00:00Z, or 2h for two hours ago")
	flags.StringVar(&before, "submitted-before", "",
		"only those submitted before this time: 2026-12-24T18:00:00Z, or 2h for two hours ago")
	return command
}

func printTasks(a *app.App, tasks []api.Task) error {
	return printTable(a, tasks, "TOOK", func(task *api.Task) string {
		if task.CreatedAt == nil || task.ClosedAt == nil {
			return ""
		}
		return app.Roughly(task.ClosedAt.Sub(*task.CreatedAt))
	})
}

// printTable prints tasks; the last column is named, and is what last makes of a task.
func printTable(a *app.App, tasks []api.Task, name string, last func(*api.Task) string) error {
	header := []string{"TASK", "TYPE", "CLUSTER", "PRIORITY", "STATUS", "AGENT", "SUBMITTED", name}
	return app.PrintTable(a, tasks, "There are no such tasks.", header, func(task *api.Task) []string {
		return []string{task.ID, task.Type, task.Cluster, task.PriorityName, statusText(a, task), agentOf(task),
			a.Ago(task.CreatedAt), last(task)}
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

// agentOf is the agent that has the task, else the one it is pinned to.
func agentOf(task *api.Task) string {
	if n := len(task.Attempts); n > 0 && task.Attempts[n-1].Outcome == fleet.AttemptRunning {
		return task.Attempts[n-1].AgentID
	}
	return task.Agent
}
