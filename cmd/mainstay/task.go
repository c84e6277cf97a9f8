package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway"
)

func (a *app) taskCommand() *cobra.Command {
	command := &cobra.Command{Use: "task", Short: "Submit tasks and see what became of them"}
	a.serverFlag(command)
	command.AddCommand(a.taskSubmitCommand(), a.taskGetCommand(), a.taskListCommand(), a.taskCancelCommand(), a.taskRetryCommand(), a.taskReviewCommand())
	return command
}

// printTask shows all that is known of a task.
func (a *app) printTask(raw json.RawMessage, task *gateway.Task) error {
	return a.print(raw, func() error {
		if err := a.taskSummary(task); err != nil {
			return err
		}
		if len(task.Attempts) > 0 {
			fmt.Fprintln(a.stdout)
			if err := a.attemptTable(task.Attempts); err != nil {
				return err
			}
		}
		return printResult(a.stdout, task)
	})
}

func (a *app) taskSummary(task *gateway.Task) error {
	t := newTable(a.stdout)
	t.row("Task", task.ID)
	t.row("Type", task.Type)
	t.row("Cluster", task.Cluster)
	t.row("Status", string(task.Status))
	optional := func(name, value string) {
		if value != "" {
			t.row(name, value)
		}
	}
	optional("Why", task.Why)
	optional("Pinned to", task.Agent)
	if task.Priority != 0 {
		t.row("Priority", strconv.Itoa(task.Priority))
	}
	optional("Tenant", task.Tenant)
	optional("Labels", labelText(task.Labels))
	optional("Next attempt", a.ago(task.NextAttemptAt))
	optional("Submitted", a.ago(task.CreatedAt))
	if task.CreatedAt != nil && task.ClosedAt != nil {
		t.row("Ended", fmt.Sprintf("%s, after %s", a.ago(task.ClosedAt), roughly(task.ClosedAt.Sub(*task.CreatedAt))))
	}
	optional("Workflow", task.WorkflowID)
	return t.flush()
}

func (a *app) attemptTable(attempts []fleet.Attempt) error {
	t := newTable(a.stdout, "ATTEMPT", "AGENT", "EPOCH", "STARTED", "TOOK", "OUTCOME", "REASON")
	for i := 0; i < len(attempts); i++ {
		at := &attempts[i]
		if last := sameReturns(attempts, i); last > i {
			t.row(fmt.Sprintf("%d to %d", at.Number, attempts[last].Number), "", "", "", "", string(at.Outcome), at.Reason)
			i = last
			continue
		}
		outcome, reason := string(at.Outcome), at.Reason
		if at.Outcome == fleet.AttemptRunning {
			outcome = "running"
			if p := at.Progress; p != nil {
				reason = strings.TrimSpace(fmt.Sprintf("%d%% %s", p.Percent, p.Step))
			}
		}
		t.row(strconv.Itoa(at.Number), at.AgentID, positive(at.Epoch), a.ago(at.StartedAt), a.took(at), outcome, reason)
	}
	return t.flush()
}

// sameReturns is the last attempt of a row from i on that came back for one reason without having reached an agent.
func sameReturns(attempts []fleet.Attempt, i int) int {
	first := &attempts[i]
	for first.Outcome == fleet.AttemptReturned && first.AgentID == "" && i+1 < len(attempts) {
		next := &attempts[i+1]
		if next.Outcome != first.Outcome || next.AgentID != "" || next.Reason != first.Reason {
			break
		}
		i++
	}
	return i
}

// positive is a number that counts from 1; empty when there is none.
func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func (a *app) took(at *fleet.Attempt) string {
	switch {
	case at.StartedAt == nil:
		return ""
	case at.EndedAt == nil:
		return roughly(max(0, a.now().Sub(*at.StartedAt)))
	}
	return roughly(max(0, at.EndedAt.Sub(*at.StartedAt)))
}

// printResult shows what a command wrote as it wrote it, and any other result as JSON.
func printResult(w io.Writer, task *gateway.Task) error {
	if len(task.Result) == 0 || string(task.Result) == "null" {
		return nil
	}
	var result agent.ExecResult
	if task.Type != agent.ExecType || json.Unmarshal(task.Result, &result) != nil {
		_, err := fmt.Fprintf(w, "\nResult:\n%s\n", indented(task.Result))
		return err
	}
	fmt.Fprintf(w, "\nExit code: %d\n", result.ExitCode)
	for _, stream := range []struct{ name, text string }{{"Output", result.Stdout}, {"Errors", result.Stderr}} {
		if stream.text == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s:\n%s\n", stream.name, strings.TrimRight(printable(stream.text), "\n")); err != nil {
			return err
		}
	}
	return nil
}

// printCommand gives what a command wrote, byte for byte unless it goes to a terminal, and says the rest beside it.
func (a *app) printCommand(task *gateway.Task) error {
	var result agent.ExecResult
	if len(task.Result) > 0 && json.Unmarshal(task.Result, &result) != nil {
		return printResult(a.stdout, task)
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
func incomplete(task *gateway.Task, waited time.Duration) error {
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
