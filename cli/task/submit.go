package task

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
)

func submitCommand(a *app.App) *cobra.Command {
	var s app.Submission
	var wait, patience time.Duration
	var command *cobra.Command
	command = a.Call(&cobra.Command{
		Use:   "submit [flags] [-- COMMAND ARGUMENT…]",
		Short: "Submit a task",
		Long: `Submit a task. It is durable as soon as this command has printed its id. While the control plane does not answer, as
during a restart, the command goes on trying for --patience; the task is submitted once.

What stands after "--" is run as a command by an agent that allows it (task type exec), without a shell. With --wait,
what it writes comes out here as if it had run here; what becomes of the task is said on standard error.`,
		Example: `  mainstay task submit --wait -- echo hello
  mainstay task submit --type render --cluster studio --payload @scene.json --priority high
  mainstay task submit --start-at +10m -- ./nightly.sh
  echo '{"n": 1}' | mainstay task submit --type count --payload -`,
	}, func(ctx context.Context, c *app.Client, args []string) error {
		request, err := s.Build(a.Stdin, a.Now(), args, command.ArgsLenAtDash())
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
		if wait == 0 {
			return a.Print(c.Answer, func() error { return printSubmitted(a, task) })
		}
		streamed := false
		if task.Type == agent.ExecType && a.StdoutTTY && !a.JSON() {
			streamed = stream(ctx, a, c, task.ID, wait)
		}
		if task, err = c.Tasks.Wait(ctx, task.ID, max(0, wait-time.Since(begun))); err != nil {
			return err
		}
		err = a.Print(c.Answer, func() error {
			if task.Type == agent.ExecType {
				return printCommand(a, task, streamed)
			}
			return printTask(a, task, wholeText)
		})
		return errors.Join(err, Incomplete(task, wait))
	})
	flags := command.Flags()
	flags.StringVar(&s.Request.ID, "id", "",
		"id of the task (default: one is made); the same id again is the same task of its tenant")
	flags.StringVar(&s.Request.IdempotencyKey, "idempotency-key", "", "the same key again is the same task")
	flags.DurationVar(
		&patience,
		"patience",
		30*time.Second,
		"how long to go on trying while the control plane does not answer",
	)
	flags.StringVar(&s.StartAt, "start-at", "",
		"when it may begin: a time such as 2026-12-24T18:00:00Z, or +10m from now (default at once)")
	s.TaskFlags(command)
	app.WaitFlag(command, &wait, untilSettled)
	return command
}

// stream shows what a command writes while it runs, until the task needs nobody more or wait is over. It reports
// whether that worked: what a command writes is not always to be had while it runs.
func stream(ctx context.Context, a *app.App, c *app.Client, id string, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	v := &logView{app: a, server: &app.Client{Client: c.Once()}, id: id, live: true}
	return v.followAll(ctx) == nil
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
