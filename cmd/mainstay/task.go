package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/fleet"
)

func taskCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "task", Short: "Submit tasks and see what became of them"}
	a.ServerFlag(command)
	command.AddCommand(taskSubmitCommand(a), taskGetCommand(a), taskLogsCommand(a), taskListCommand(a), taskCancelCommand(a), taskRetryCommand(a), taskBulkCommand(a), taskReviewCommand(a), taskDiscardCommand(a), taskPriorityCommand(a))
	command.AddCommand(append(taskQueueCommands(a), taskBatchCommand(a))...)
	return command
}

// printCommand gives what a command wrote, byte for byte unless it goes to a terminal, and says the rest beside it.
func printCommand(a *app.App, task *api.Task) error {
	var result agent.ExecResult
	if len(task.Result) > 0 && json.Unmarshal(task.Result, &result) != nil {
		return printResult(a.Stdout, task, wholeText)
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
		fmt.Fprintf(a.Stderr, "Task %s completed on %s.\n", task.ID, doneBy(task))
	} else if task.Why != "" {
		fmt.Fprintln(a.Stderr, app.OneLine(task.Why))
	}
	return nil
}

// incomplete is the error for a task that was waited for and is not completed.
func incomplete(task *api.Task, waited time.Duration) error {
	switch {
	case task.Status == fleet.TaskCompleted:
		return nil
	case task.Status.Final():
		return app.WithExit(app.ExitIncomplete, fmt.Errorf("task %s is %s", task.ID, task.Status))
	case task.Status == fleet.TaskReview:
		return app.WithExit(app.ExitIncomplete, fmt.Errorf("task %s needs a decision: see `mainstay task review --help`", task.ID))
	case task.Status == fleet.TaskDeadLetter:
		return app.WithExit(app.ExitIncomplete, fmt.Errorf("task %s has used up its attempts: try it again with `mainstay task retry %s`", task.ID, task.ID))
	}
	return app.WithExit(app.ExitIncomplete, fmt.Errorf("task %s is still %s after %s; it goes on by itself", task.ID, task.Status, waited))
}
