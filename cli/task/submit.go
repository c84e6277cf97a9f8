package task

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
)

func submitCommand(a *app.App) *cobra.Command {
	var s app.Submission
	var wait time.Duration
	var command *cobra.Command
	command = a.Call(&cobra.Command{
		Use:   "submit [flags] [-- COMMAND ARGUMENT…]",
		Short: "Submit a task",
		Long: `Submit a task. It is durable as soon as this command has printed its id.

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
		task, err := c.Tasks.Submit(ctx, request)
		if err != nil {
			return err
		}
		if wait == 0 {
			return a.Print(c.Answer, func() error { return printSubmitted(a, task) })
		}
		if task, err = c.Tasks.Wait(ctx, task.ID, wait); err != nil {
			return err
		}
		err = a.Print(c.Answer, func() error {
			if task.Type == agent.ExecType {
				return printCommand(a, task)
			}
			return printTask(a, task, wholeText)
		})
		return errors.Join(err, Incomplete(task, wait))
	})
	flags := command.Flags()
	flags.StringVar(&s.Request.ID, "id", "",
		"id of the task (default: one is made); the same id again is the same task of its tenant")
	flags.StringVar(&s.Request.IdempotencyKey, "idempotency-key", "", "the same key again is the same task")
	flags.StringVar(&s.StartAt, "start-at", "",
		"when it may begin: a time such as 2026-12-24T18:00:00Z, or +10m from now (default at once)")
	s.TaskFlags(command)
	app.WaitFlag(command, &wait, untilSettled)
	return command
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
