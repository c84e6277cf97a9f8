// Package task has the commands of tasks, one at a time and in bulk.
package task

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

// Command is the group of tasks.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "task", Short: "Submit tasks and see what became of them"}
	a.ServerFlag(command)
	command.AddCommand(submitCommand(a), getCommand(a), logsCommand(a), listCommand(a), cancelCommand(a),
		retryCommand(a), bulkCommand(a), reviewCommand(a), discardCommand(a), priorityCommand(a))
	command.AddCommand(append(queueCommands(a), batchCommand(a))...)
	return command
}

// untilSettled is what --wait waits for.
const untilSettled = "the task has ended or needs a person"

func getCommand(a *app.App) *cobra.Command {
	var wait time.Duration
	command := a.Call(&cobra.Command{
		Use: "get ID", Short: "Show a task: its status, why it waits, what was submitted, its attempts, its result and its history",
		Long:    "An id may be cut short, as long as one task's id begins so.",
		Example: "  mainstay task get t-06… --wait=2m", Args: app.Exactly("a task's id"),
	}, func(ctx context.Context, s *app.Client, args []string) error {
		task, err := withTask(ctx, s.Tasks, args[0], func(id string) (*api.Task, error) {
			return s.Tasks.Wait(ctx, id, wait, client.WithPayload, client.WithHistory)
		})
		if err == nil {
			err = a.Print(s.Answer, func() error { return printTask(a, task, shortText) })
		}
		if err != nil || wait == 0 {
			return err
		}
		return Incomplete(task, wait)
	})
	app.WaitFlag(command, &wait, untilSettled)
	return command
}

// printCommand gives what a command wrote, byte for byte unless it goes to a terminal, and says the rest beside it.
// What the command wrote was streamed before, or is given now.
func printCommand(a *app.App, task *api.Task, streamed bool) error {
	var result agent.ExecResult
	if len(task.Result) > 0 && json.Unmarshal(task.Result, &result) != nil {
		return printResult(a.Stdout, task, wholeText)
	}
	if streamed {
		result.Stdout, result.Stderr = "", ""
	}
	stdout := result.Stdout
	if a.StdoutTTY {
		stdout = app.Printable(stdout)
	}
	if _, err := io.WriteString(a.Stdout, stdout); err != nil {
		return err
	}
	if _, err := io.WriteString(a.Stderr, app.Printable(result.Stderr)); err != nil {
		return err
	}
	if result.Stderr != "" && !strings.HasSuffix(result.Stderr, "\n") {
		fmt.Fprintln(a.Stderr)
	}
	if task.Status == fleet.TaskCompleted {
		fmt.Fprintf(a.Stderr, "Task %s completed on %s.\n", task.ID, DoneBy(task))
	} else if task.Why != "" {
		fmt.Fprintln(a.Stderr, app.OneLine(task.Why))
	}
	return nil
}

// Incomplete is the error for a task that was waited for and is not completed.
func Incomplete(task *api.Task, waited time.Duration) error {
	switch {
	case task.Status == fleet.TaskCompleted:
		return nil
	case task.Status.Final():
		return app.WithExit(app.ExitIncomplete, fmt.Errorf("task %s is %s", task.ID, task.Status))
	case task.Status == fleet.TaskReview:
		return app.WithExit(app.ExitIncomplete,
			fmt.Errorf("task %s needs a decision: see `mainstay task review --help`", task.ID))
	case task.Status == fleet.TaskDeadLetter:
		return app.WithExit(app.ExitIncomplete,
			fmt.Errorf("task %s has used up its attempts: try it again with `mainstay task retry %s`", task.ID,
				task.ID))
	}
	return app.WithExit(app.ExitIncomplete, fmt.Errorf("task %s is still %s after %s; it goes on by itself", task.ID,
		task.Status, waited))
}

// DoneBy is the agent whose attempt completed the task.
func DoneBy(task *api.Task) string {
	for _, attempt := range task.Attempts {
		if attempt.Outcome == fleet.AttemptCompleted {
			return attempt.AgentID
		}
	}
	return "unknown"
}
