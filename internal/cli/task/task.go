// Package task has the commands of tasks, one at a time and in bulk.
package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// Command is the group of tasks.
func Command(a *app.App) *cobra.Command {
	r := &app.Resource[client.Tasks]{App: a, Of: func(c *client.Client) client.Tasks { return c.Tasks },
		ID: "a task's id", Reason: "why; kept in the task's history", Full: fullID}
	return a.GroupOf(&cobra.Command{Use: "task", Short: "Submit tasks and see what became of them"},
		submitCommand(a), batchCommand(a), getCommand(a), logsCommand(a), listCommand(r), waitingCommand(r),
		deadLettersCommand(r),
		app.Do(r, &cobra.Command{
			Use: "cancel ID", Short: "Cancel a task that has not ended",
			Long:    "Cancel a task that has not ended. If an agent runs it, the agent is told to stop it.",
			Example: `  mainstay task cancel t-06… --reason "wrong input"`,
		}, r.ReasonFlag, client.Tasks.Cancel, printNow),
		app.Do(r, &cobra.Command{
			Use: "retry ID", Short: "Give a dead letter a fresh set of attempts",
			Example: `  mainstay task retry t-06… --reason "disk was full"`,
		}, r.ReasonFlag, client.Tasks.Retry, printNow),
		rerunCommand(a), reviewCommand(r), discardCommand(r), priorityCommand(r), bulkCommand(a))
}

// untilSettled is what --wait waits for.
const untilSettled = "the task has ended or needs a person"

func getCommand(a *app.App) *cobra.Command {
	var wait time.Duration
	command := a.Call(&cobra.Command{
		Use: "get ID", Short: "Show a task: status, why it waits, payload, attempts, result and history",
		Long:    "An id may be cut short, as long as one task's id begins so.",
		Example: "  mainstay task get t-06… --wait=2m", Args: app.Exactly("a task's id"),
	}, func(ctx context.Context, s *app.Client, args []string) error {
		task, err := withTask(ctx, s.Tasks, args[0], func(id string) (*api.Task, error) {
			return s.Tasks.Wait(ctx, id, wait, client.WithPayload, client.WithHistory)
		})
		if err == nil {
			err = s.Print(func() error {
				return errors.Join(printStory(a, task, shortText), printWritten(ctx, a, s, task),
					printHistory(a, task.History))
			})
		}
		if err != nil || wait == 0 {
			return err
		}
		return Incomplete(task, wait)
	})
	app.WaitFlag(command, &wait, untilSettled)
	return command
}

// printCommand prints a command's output as plain text, and the rest beside it. Output that was streamed is not printed
// again.
func printCommand(a *app.App, task *api.Task, streamed bool) error {
	var result agent.ExecResult
	if len(task.Result) > 0 && json.Unmarshal(task.Result, &result) != nil {
		return printResult(a.Stdout, task, wholeText)
	}
	if streamed {
		result.Stdout, result.Stderr = "", ""
	}
	if _, err := io.WriteString(a.Stdout, app.Printable(result.Stdout)); err != nil {
		return err
	}
	if _, err := io.WriteString(a.Stderr, app.Printable(result.Stderr)); err != nil {
		return err
	}
	if result.Stderr != "" && !strings.HasSuffix(result.Stderr, "\n") {
		fmt.Fprintln(a.Stderr)
	}
	if task.Status == api.TaskCompleted {
		fmt.Fprintf(a.Stderr, "Task %s completed on %s.\n", task.ID, DoneBy(task))
	} else if task.Why != "" {
		fmt.Fprintln(a.Stderr, app.OneLine(task.Why))
	}
	return nil
}

// Incomplete is the error for a task that was waited for and is not completed.
func Incomplete(task *api.Task, waited time.Duration) error {
	switch {
	case task.Status == api.TaskCompleted:
		return nil
	case task.Status.Final():
		return app.IncompleteError("task %s is %s", task.ID, task.Status)
	case task.Status == api.TaskReview:
		return app.IncompleteError("task %s needs a decision: see `mainstay task review --help`", task.ID)
	case task.Status == api.TaskDeadLetter:
		return app.IncompleteError("task %[1]s has used up its attempts: try it again with `mainstay task retry %[1]s`",
			task.ID)
	}
	return app.IncompleteError("task %s is still %s after %s; it goes on by itself", task.ID, task.Status, waited)
}

// DoneBy is the agent whose attempt completed the task.
func DoneBy(task *api.Task) string {
	for _, attempt := range task.Attempts {
		if attempt.Outcome == api.AttemptCompleted {
			return attempt.AgentID
		}
	}
	return "unknown"
}

func submitCommand(a *app.App) *cobra.Command {
	var s app.Submission
	var wait, patience time.Duration
	var command *cobra.Command
	command = a.Call(&cobra.Command{
		Use:   "submit [flags] [-- COMMAND ARGUMENT…]",
		Short: "Submit a task",
		Long: `Submit a task. It is durable as soon as this command has printed its id. While the control plane does not
answer, as during a restart, the command goes on trying for --patience; the task is submitted once.

What stands after "--" is run as a command by an agent that allows it (task type exec), without a shell and with an
empty standard input: hand data on in a file, an argument or a variable. With --wait, what it writes comes out here as
if it had run here, also when it fails; what becomes of the task is said on standard error. The exit status is 0 when
it completed, and 6 when it did not.`,
		Example: `  mainstay task submit --wait -- echo hello
  mainstay task submit --type render --cluster studio --payload @scene.json --priority high
  mainstay task submit --start-at +10m -- ./nightly.sh
  echo '{"n": 1}' | mainstay task submit --type count --payload -`,
	}, func(ctx context.Context, c *app.Client, args []string) error {
		request, err := s.Build(a.Stdin, args, command.ArgsLenAtDash())
		if err == nil {
			err = s.CheckPayload(request)
		}
		if err != nil {
			return err
		}
		var once sync.Once
		c.Client = c.Patient(patience, func(err error) {
			once.Do(func() {
				fmt.Fprintf(a.Stderr, "%s\nTrying again for up to %s.\n", app.OneLine(err.Error()), patience)
			})
		})
		task, err := c.Tasks.Submit(ctx, request)
		begun := time.Now()
		if err != nil {
			return err
		}
		return follow(ctx, a, c, task, wait, begun)
	})
	flags := command.Flags()
	flags.StringVar(&s.Request.ID, "id", "",
		"id of the task (default: one is made); the same id again is the same task of its tenant")
	flags.StringVar(&s.Request.IdempotencyKey, "idempotency-key", "", "the same key again is the same task")
	flags.DurationVar(&patience, "patience", 30*time.Second,
		"how long to go on trying while the control plane does not answer")
	a.TimeFlag(flags, "start-at",
		"when it may begin: a time such as 2026-12-24T18:00:00Z, or +10m from now (default at once)",
		func(at time.Time) { s.Request.StartAt = at })
	a.TimeFlag(flags, "expires-at",
		"instead of --expires-in: when it expires, however often it was tried before: a time, or +10m from now",
		func(at time.Time) { s.Request.ExpiresAt = at })
	s.TaskFlags(command)
	app.WaitFlag(command, &wait, untilSettled)
	return command
}

// follow reports on a submitted task: at once, or when it has ended.
func follow(
	ctx context.Context, a *app.App, c *app.Client, task *api.Task, wait time.Duration, begun time.Time,
) (err error) {
	if wait == 0 {
		return c.Print(func() error { return printSubmitted(a, task) })
	}
	fmt.Fprintf(a.Stderr, "Task %s is submitted.\n", task.ID) // for whoever does not wait until the end
	id, streamed := task.ID, false
	if task.Type == agent.ExecType && a.StdoutTTY && !a.JSON() {
		streamed = stream(ctx, a, c, task.ID, wait)
	}
	if task, err = c.Tasks.Wait(ctx, id, max(0, wait-time.Since(begun))); err != nil {
		return app.GoesOn(err, "task "+id, "mainstay task get "+id+" --wait=1h", "mainstay task cancel "+id)
	}
	err = c.Print(func() error {
		if task.Type == agent.ExecType {
			if !streamed && len(task.Result) == 0 { // it has not succeeded: what it wrote is in its log only
				streamed = printLog(ctx, a, c, id)
			}
			return printCommand(a, task, streamed)
		}
		return printTask(a, task, wholeText)
	})
	return errors.Join(err, Incomplete(task, wait))
}

// stream shows what a command writes while it runs, until the task needs nobody more or wait is over. It reports
// whether that worked: what a command writes is not always to be had while it runs.
func stream(ctx context.Context, a *app.App, c *app.Client, id string, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	v := &logView{app: a, server: &app.Client{Client: c.Once()}, id: id, live: true}
	return v.followAll(ctx) == nil
}

// printLog shows what the last attempt of a command has written, as it would itself. It reports whether that worked.
func printLog(ctx context.Context, a *app.App, c *app.Client, id string) bool {
	v := &logView{app: a, server: c, id: id, live: true}
	log, err := v.read(ctx, 0)
	return err == nil && v.show(log) == nil
}

// printWritten shows the end of what a command wrote that brought no result.
func printWritten(ctx context.Context, a *app.App, c *app.Client, task *api.Task) error {
	if task.Type != agent.ExecType || len(task.Result) > 0 || !task.Status.Settled() || len(task.Attempts) == 0 {
		return nil
	}
	log, err := c.Tasks.Log(ctx, task.ID, client.LogQuery{})
	if err != nil || len(log.Lines) == 0 {
		return nil //nolint:nilerr // task logs says why it cannot be read
	}
	last := log.Lines[max(0, len(log.Lines)-shortLines):]
	title := "\nOutput of attempt " + strconv.Itoa(log.Attempt)
	if len(last) < len(log.Lines) || last[0].Number > 1 {
		title += fmt.Sprintf(", its last %d lines (all that is kept: mainstay task logs %s)", len(last), task.ID)
	}
	fmt.Fprintln(a.Stdout, title+":")
	for i := range last {
		fmt.Fprintln(a.Stdout, app.Printable(last[i].Text))
	}
	return nil
}

func printSubmitted(a *app.App, task *api.Task) error {
	note := "submitted"
	switch {
	case task.Duplicate:
		note = "was submitted before; it is " + string(task.Status)
	case task.NextAttemptAt != nil:
		note = "submitted; it starts " + a.Ago(task.NextAttemptAt)
	}
	return a.Sayf("Task %[1]s %[2]s. See it with: mainstay task get %[1]s --wait\n", task.ID, note)
}
