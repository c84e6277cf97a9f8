package task

import (
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
)

func getCommand(a *app.App) *cobra.Command {
	var wait time.Duration
	command := &cobra.Command{
		Use:     "get ID",
		Short:   "Show a task: its status, why it waits, its payload, its attempts and its result",
		Example: "  mainstay task get t-06… --wait=2m",
		Args:    app.Exactly("a task's id"),
		RunE: func(c *cobra.Command, args []string) error {
			server, err := a.Client()
			if err != nil {
				return err
			}
			task, err := server.WaitForTask(c.Context(), args[0], wait, client.WithPayload)
			if err != nil {
				return err
			}
			if err := printTask(a, server.Answer, task, shortText); err != nil {
				return err
			}
			if wait > 0 {
				return Incomplete(task, wait)
			}
			return nil
		},
	}
	app.WaitFlag(command, &wait, untilSettled)
	a.OutputFlag(command)
	return command
}

// untilSettled is what --wait waits for.
const untilSettled = "the task has ended or needs a person"
