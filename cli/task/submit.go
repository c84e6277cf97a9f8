package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/agent"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
)

func submitCommand(a *app.App) *cobra.Command {
	var s app.Submission
	var wait time.Duration
	command := &cobra.Command{
		Use:   "submit [flags] [-- COMMAND ARGUMENT…]",
		Short: "Submit a task",
		Long: `Submit a task. It is durable as soon as this command has printed its id.

What stands after "--" is run as a command by an agent that allows it (task type exec), without a shell. With --wait,
what it writes comes out here as if it had run here; what becomes of the task is said on standard error.`,
		Example: `  mainstay task submit --wait -- echo hello
  mainstay task submit --type render --cluster studio --payload @scene.json --priority high
  mainstay task submit --start-at +10m -- ./nightly.sh
  echo '{"n": 1}' | mainstay task submit --type count --payload -`,
		RunE: func(c *cobra.Command, args []string) error {
			request, err := s.Build(a.Stdin, a.Now(), args, c.ArgsLenAtDash())
			if err != nil {
				return err
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			task, err := client.Submit(c.Context(), request)
			if err != nil {
				return err
			}
			if wait == 0 {
				return printSubmitted(a, client.Answer, task)
			}
			if task, err = client.WaitForTask(c.Context(), task.ID, wait); err != nil {
				return err
			}
			if task.Type == agent.ExecType && !a.JSON() {
				err = printCommand(a, task)
			} else {
				err = printTask(a, client.Answer, task, wholeText)
			}
			return errors.Join(err, Incomplete(task, wait))
		},
	}
	flags := command.Flags()
	flags.StringVar(&s.Request.ID, "id", "",
		"id of the task (default: one is made); the same id again is the same task of its tenant")
	flags.StringVar(&s.Request.IdempotencyKey, "idempotency-key", "", "the same key again is the same task")
	flags.StringVar(&s.StartAt, "start-at", "",
		"when it may begin: a time such as 2026-12-24T18:00:00Z, or +10m from now (default at once)")
	s.TaskFlags(command)
	app.WaitFlag(command, &wait, untilSettled)
	a.OutputFlag(command)
	return command
}

func printSubmitted(a *app.App, raw json.RawMessage, task *api.Task) error {
	return a.Print(raw, func() error {
		note := "submitted"
		switch {
		case task.Duplicate:
			note = "was submitted before; it is " + string(task.Status)
		case task.NextAttemptAt != nil:
			note = "submitted; it starts " + a.Ago(task.NextAttemptAt)
		}
		_, err := fmt.Fprintf(a.Stdout, "Task %s %s. See it with: mainstay task get %s --wait\n", task.ID, note,
			task.ID)
		return err
	})
}
