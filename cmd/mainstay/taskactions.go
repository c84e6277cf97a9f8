package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway"
)

func (a *app) taskCancelCommand() *cobra.Command {
	return a.reasonCommand(&cobra.Command{
		Use: "cancel ID", Short: "Cancel a task that has not ended",
		Long:    "Cancel a task that has not ended. If an agent runs it, the agent is told to stop it.",
		Example: `  mainstay task cancel t-06… --reason "wrong input"`,
	}, "cancel")
}

func (a *app) taskRetryCommand() *cobra.Command {
	return a.reasonCommand(&cobra.Command{
		Use: "retry ID", Short: "Give a dead letter a fresh set of attempts",
		Example: `  mainstay task retry t-06… --reason "disk was full"`,
	}, "retry")
}

func (a *app) reasonCommand(command *cobra.Command, action string) *cobra.Command {
	var reason string
	command.Args = exactly("a task's id")
	command.RunE = func(c *cobra.Command, args []string) error {
		return a.act(c, args[0], action, gateway.ReasonRequest{Reason: reason})
	}
	command.Flags().StringVar(&reason, "reason", "", "why; kept in the task's history")
	a.outputFlag(command)
	return command
}

func (a *app) taskReviewCommand() *cobra.Command {
	var decision, result, reason string
	command := &cobra.Command{
		Use:   "review ID --decision rerun|completed|failed",
		Short: "Decide about a task that may not be safe to run again",
		Long: `Decide about a task that may not be safe to run again: its agent was lost, and nobody knows how far it came.

  rerun      it is safe: deliver it again
  completed  it was done: take --result as its result
  failed     give it up`,
		Example: `  mainstay task review t-06… --decision rerun --reason "no invoice was sent"`,
		Args:    exactly("a task's id"),
		RunE: func(c *cobra.Command, args []string) error {
			request := gateway.ReviewTaskRequest{Decision: fleet.ReviewDecision(decision), Reason: reason}
			if err := request.Decision.Validate(); err != nil {
				return usageError("--%w", err)
			}
			var err error
			if request.Result, err = readJSON("--result", result, a.stdin); err != nil {
				return err
			}
			if request.Result != nil && request.Decision != fleet.ReviewCompleted {
				return usageError("--result belongs to --decision completed")
			}
			return a.act(c, args[0], "review", request)
		},
	}
	flags := command.Flags()
	flags.StringVar(&decision, "decision", "", "rerun, completed or failed")
	flags.StringVar(&result, "result", "", "with completed: the result as JSON, @FILE, or - for standard input")
	flags.StringVar(&reason, "reason", "", "why; kept in the task's history")
	a.outputFlag(command)
	return command
}

// act asks for a change of a task and prints how it stands then.
func (a *app) act(c *cobra.Command, id, action string, request any) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	task := &gateway.Task{}
	raw, err := client.call(c.Context(), http.MethodPost, pathOf(tasksPath, id, action), 0, request, task)
	if err != nil {
		return err
	}
	return a.print(raw, func() error {
		_, err := fmt.Fprintf(a.stdout, "Task %s is now %s.\n", task.ID, task.Status)
		return err
	})
}
