package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
)

func (a *app) taskListCommand() *cobra.Command {
	var cluster, status, taskType, tenant, pinned, after, before string
	var labels []string
	var limit int
	command := &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Example: `  mainstay task list --status running
  mainstay task list --label project=film --submitted-after 2h
  mainstay task list --status dead_letter --cluster studio -o json`,
		Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			query := queryOf("cluster", cluster, "status", status, "type", taskType, "tenant", tenant, "agent", pinned)
			for _, label := range labels {
				if !strings.ContainsAny(label, "=:") {
					return usageError("--label must be name=value")
				}
				query.Add("label", label)
			}
			for _, at := range []struct{ flag, parameter, text string }{
				{"--submitted-after", "submitted_after", after}, {"--submitted-before", "submitted_before", before},
			} {
				if at.text == "" {
					continue
				}
				t, err := pastFlag(at.flag, at.text, a.now())
				if err != nil {
					return err
				}
				query.Set(at.parameter, t.Format(time.RFC3339Nano))
			}
			return printList(c, a, tasksPath, "tasks", query, limit, a.printTasks)
		},
	}
	flags := command.Flags()
	flags.StringVar(&cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&status, "status", "", "only with this status: queued, running, retry_wait, review, dead_letter, completed, failed, cancelled or expired")
	flags.StringVar(&taskType, "type", "", "only of this type")
	flags.StringVar(&tenant, "tenant", "", "only of this tenant")
	flags.StringVar(&pinned, "agent", "", "only those pinned to this agent")
	flags.StringArrayVar(&labels, "label", nil, "only with this label, as name=value; of several, those with all")
	flags.StringVar(&after, "submitted-after", "", "only those submitted at this time or later: 2026-12-24T18:00:00Z, or 2h for two hours ago")
	flags.StringVar(&before, "submitted-before", "", "only those submitted before this time: 2026-12-24T18:00:00Z, or 2h for two hours ago")
	limitFlag(command, &limit)
	a.outputFlag(command)
	return command
}

func (a *app) printTasks(tasks []api.Task) error {
	if len(tasks) == 0 {
		_, err := fmt.Fprintln(a.stdout, "There are no such tasks.")
		return err
	}
	t := newTable(a.stdout, "TASK", "TYPE", "CLUSTER", "PRIORITY", "STATUS", "AGENT", "SUBMITTED", "TOOK")
	for i := range tasks {
		task := &tasks[i]
		var took string
		if task.CreatedAt != nil && task.ClosedAt != nil {
			took = roughly(task.ClosedAt.Sub(*task.CreatedAt))
		}
		t.row(task.ID, task.Type, task.Cluster, task.PriorityName, a.statusText(task), agentOf(task), a.ago(task.CreatedAt), took)
	}
	return t.flush()
}

// statusText is the status, with the time that the task waits for.
func (a *app) statusText(task *api.Task) string {
	text := string(task.Status)
	if task.NextAttemptAt != nil {
		text += ", " + a.ago(task.NextAttemptAt)
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
