package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
)

func (a *app) taskCommand() *cobra.Command {
	command := &cobra.Command{Use: "task", Short: "Submit tasks and see what became of them"}
	a.serverFlag(command)
	command.AddCommand(a.taskSubmitCommand(), a.taskGetCommand(), a.taskLogsCommand(), a.taskListCommand(), a.taskCancelCommand(), a.taskRetryCommand(), a.taskBulkCommand(), a.taskReviewCommand(), a.taskDiscardCommand(), a.taskPriorityCommand())
	command.AddCommand(append(a.taskQueueCommands(), a.taskBatchCommand())...)
	return command
}

// printCommand gives what a command wrote, byte for byte unless it goes to a terminal, and says the rest beside it.
func (a *app) printCommand(task *api.Task) error {
	var result agent.ExecResult
	if len(task.Result) > 0 && json.Unmarshal(task.Result, &result) != nil {
		return printResult(a.stdout, task, wholeText)
	}
	stdout := result.Stdout
	if a.stdoutTTY {
		stdout = printable(stdout)
	}
	if _, err := io.WriteString(a.stdout, stdout); err != nil {
		return err
	}
	if _, err := io.WriteString(a.stderr, printable(result.Stderr)); err != nil {
		return err
	}
	if result.Stderr != "" && !strings.HasSuffix(result.Stderr, "\n") {
		fmt.Fprintln(a.stderr)
	}
	if task.Status == fleet.TaskCompleted {
		fmt.Fprintf(a.stderr, "Task %s completed on %s.\n", task.ID, doneBy(task))
	} else if task.Why != "" {
		fmt.Fprintln(a.stderr, oneLine(task.Why))
	}
	return nil
}

func labelText(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for name, value := range labels {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// incomplete is the error for a task that was waited for and is not completed.
func incomplete(task *api.Task, waited time.Duration) error {
	switch {
	case task.Status == fleet.TaskCompleted:
		return nil
	case task.Status.Final():
		return withExit(exitIncomplete, fmt.Errorf("task %s is %s", task.ID, task.Status))
	case task.Status == fleet.TaskReview:
		return withExit(exitIncomplete, fmt.Errorf("task %s needs a decision: see `mainstay task review --help`", task.ID))
	case task.Status == fleet.TaskDeadLetter:
		return withExit(exitIncomplete, fmt.Errorf("task %s has used up its attempts: try it again with `mainstay task retry %s`", task.ID, task.ID))
	}
	return withExit(exitIncomplete, fmt.Errorf("task %s is still %s after %s; it goes on by itself", task.ID, task.Status, waited))
}
