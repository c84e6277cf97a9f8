package task

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/fleet"
)

func cancelCommand(a *app.App) *cobra.Command {
	return reasonCommand(a, &cobra.Command{
		Use: "cancel ID", Short: "Cancel a task that has not ended",
		Long:    "Cancel a task that has not ended. If an agent runs it, the agent is told to stop it.",
		Example: `  mainstay task cancel t-06… --reason "wrong input"`,
	}, (*client.Client).CancelTask)
}

func retryCommand(a *app.App) *cobra.Command {
	return reasonCommand(a, &cobra.Command{
		Use: "retry ID", Short: "Give a dead letter a fresh set of attempts",
		Example: `  mainstay task retry t-06… --reason "disk was full"`,
	}, (*client.Client).RetryTask)
}

func discardCommand(a *app.App) *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use: "discard ID --reason TEXT", Short: "Give a dead letter up",
		Long:    "Give a dead letter up: it ends as failed now, and not when its retention does. Its attempts and payload stay visible.",
		Example: `  mainstay task discard t-06… --reason "the customer is gone"`,
		Args:    app.Exactly("a task's id"),
		RunE: func(c *cobra.Command, args []string) error {
			if strings.TrimSpace(reason) == "" {
				return app.UsageError("say why with --reason")
			}
			return act(a, func(s *client.Client) (*api.Task,
				error) {
				return s.DiscardTask(c.Context(), args[0], reason)
			})
		},
	}
	command.Flags().StringVar(&reason, "reason", "", "why; the task says it afterwards (required)")
	a.OutputFlag(command)
	return command
}

func priorityCommand(a *app.App) *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use: "priority ID PRIORITY", Short: "Change the priority of a task that has not ended",
		Long: `Change the priority of a task that has not ended: 1 (first) to 5 (last), or critical, high, normal, low or background.

A task that waits for an agent is moved within about a second. What an agent runs already is not disturbed; the priority
then holds for later attempts.`,
		Example: `  mainstay task priority t-06… high --reason "the customer is waiting"`,
		Args:    app.Exactly("a task's id", "a priority"),
		RunE: func(c *cobra.Command, args []string) error {
			priority, err := fleet.ParsePriority(args[1])
			if err != nil {
				return app.WithExit(app.ExitUsage, err)
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			request := api.TaskPriorityRequest{Priority: priority, Reason: reason}
			task, err := client.SetTaskPriority(c.Context(), args[0], request)
			if err != nil {
				return err
			}
			return a.Print(client.Answer, func() error {
				_, err := fmt.Fprintf(a.Stdout, "Task %s has priority %s now; it is %s.\n", task.ID, task.PriorityName,
					task.Status)
				return err
			})
		},
	}
	command.Flags().StringVar(&reason, "reason", "", "why; kept in the task's history")
	a.OutputFlag(command)
	return command
}

func reasonCommand(
	a *app.App, command *cobra.Command,
	do func(s *client.Client, ctx context.Context, id, reason string) (*api.Task, error),
) *cobra.Command {
	var reason string
	command.Args = app.Exactly("a task's id")
	command.RunE = func(c *cobra.Command, args []string) error {
		return act(a, func(s *client.Client) (*api.Task, error) { return do(s, c.Context(), args[0], reason) })
	}
	command.Flags().StringVar(&reason, "reason", "", "why; kept in the task's history")
	a.OutputFlag(command)
	return command
}

func reviewCommand(a *app.App) *cobra.Command {
	var decision, result, reason string
	command := &cobra.Command{
		Use:   "review ID --decision rerun|completed|failed",
		Short: "Decide about a task that may not be safe to run again",
		Long: `Decide about a task that may not be safe to run again: its agent was lost, and nobody knows how far it came.

  rerun      it is safe: deliver it again
  completed  it was done: take --result as its result
  failed     give it up`,
		Example: `  mainstay task review t-06… --decision rerun --reason "no invoice was sent"`,
		Args:    app.Exactly("a task's id"),
		RunE: func(c *cobra.Command, args []string) error {
			request := api.ReviewTaskRequest{Decision: fleet.ReviewDecision(decision), Reason: reason}
			if err := request.Decision.Validate(); err != nil {
				return app.UsageError("--%w", err)
			}
			var err error
			if request.Result, err = app.ReadJSON("--result", result, a.Stdin); err != nil {
				return err
			}
			if request.Result != nil && request.Decision != fleet.ReviewCompleted {
				return app.UsageError("--result belongs to --decision completed")
			}
			return act(a, func(s *client.Client) (*api.Task,
				error) {
				return s.ReviewTask(c.Context(), args[0], request)
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&decision, "decision", "", "rerun, completed or failed")
	flags.StringVar(&result, "result", "", "with completed: the result as JSON, @FILE, or - for standard input")
	flags.StringVar(&reason, "reason", "", "why; kept in the task's history")
	a.OutputFlag(command)
	return command
}

// act asks for a change of a task and prints how it stands then.
func act(a *app.App, do func(*client.Client) (*api.Task, error)) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	task, err := do(client.Client)
	if err != nil {
		return err
	}
	return a.Print(client.Answer, func() error {
		_, err := fmt.Fprintf(a.Stdout, "Task %s is now %s.\n", task.ID, task.Status)
		return err
	})
}
