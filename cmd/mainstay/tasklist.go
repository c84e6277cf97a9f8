package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway"
)

func (a *app) taskListCommand() *cobra.Command {
	var cluster, status, taskType, tenant, pinned string
	var limit int
	command := &cobra.Command{
		Use:     "list",
		Short:   "List tasks, newest first",
		Example: "  mainstay task list --status running\n  mainstay task list --status dead_letter --cluster studio -o json",
		Args:    exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 {
				return usageError("--limit must be at least 1")
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			query := queryOf("cluster", cluster, "status", status, "type", taskType, "tenant", tenant, "agent", pinned)
			raw, tasks, more, err := list[gateway.Task](c.Context(), client, tasksPath, "tasks", query, limit)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"tasks": raw}, func() error { return a.printTasks(tasks, more) })
		},
	}
	flags := command.Flags()
	flags.StringVar(&cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&status, "status", "", "only with this status: queued, running, retry_wait, review, dead_letter, completed, failed, cancelled or expired")
	flags.StringVar(&taskType, "type", "", "only of this type")
	flags.StringVar(&tenant, "tenant", "", "only of this tenant")
	flags.StringVar(&pinned, "agent", "", "only those pinned to this agent")
	flags.IntVar(&limit, "limit", 50, "at most this many")
	a.outputFlag(command)
	return command
}

func (a *app) printTasks(tasks []gateway.Task, more bool) error {
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
	if err := t.flush(); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(a.stderr, "There are more: raise --limit.\n")
	}
	return nil
}

// statusText is the status, with the time that the task waits for.
func (a *app) statusText(task *gateway.Task) string {
	text := string(task.Status)
	if task.NextAttemptAt != nil {
		text += ", " + a.ago(task.NextAttemptAt)
	}
	return text
}

// agentOf is the agent that has the task, else the one it is pinned to.
func agentOf(task *gateway.Task) string {
	if n := len(task.Attempts); n > 0 && task.Attempts[n-1].Outcome == fleet.AttemptRunning {
		return task.Attempts[n-1].AgentID
	}
	return task.Agent
}

// queryOf makes a query of names and values, leaving out empty values.
func queryOf(pairs ...string) url.Values {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return query
}
