package task

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/fleet"
)

func cancelCommand(a *app.App) *cobra.Command {
	return reasonCommand(a, &cobra.Command{
		Use: "cancel ID", Short: "Cancel a task that has not ended",
		Long:    "Cancel a task that has not ended. If an agent runs it, the agent is told to stop it.",
		Example: `  mainstay task cancel t-06… --reason "wrong input"`,
	}, "cancel")
}

func retryCommand(a *app.App) *cobra.Command {
	return reasonCommand(a, &cobra.Command{
		Use: "retry ID", Short: "Give a dead letter a fresh set of attempts",
		Example: `  mainstay task retry t-06… --reason "disk was full"`,
	}, "retry")
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
			return act(a, c, args[0], "discard", api.DiscardTaskRequest{Reason: reason})
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
			task := &api.Task{}
			request := api.TaskPriorityRequest{Priority: priority, Reason: reason}
			raw, err := client.Call(c.Context(), http.MethodPost, app.Path(app.TasksPath, args[0], "priority"), 0, request, task)
			if err != nil {
				return err
			}
			return a.Print(raw, func() error {
				_, err := fmt.Fprintf(a.Stdout, "Task %s has priority %s now; it is %s.\n", task.ID, task.PriorityName, task.Status)
				return err
			})
		},
	}
	command.Flags().StringVar(&reason, "reason", "", "why; kept in the task's history")
	a.OutputFlag(command)
	return command
}

func reasonCommand(a *app.App, command *cobra.Command, action string) *cobra.Command {
	var reason string
	command.Args = app.Exactly("a task's id")
	command.RunE = func(c *cobra.Command, args []string) error {
		return act(a, c, args[0], action, api.ReasonRequest{Reason: reason})
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
			return act(a, c, args[0], "review", request)
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
func act(a *app.App, c *cobra.Command, id, action string, request any) error {
	client, err := a.Client()
	if err != nil {
		return err
	}
	task := &api.Task{}
	raw, err := client.Call(c.Context(), http.MethodPost, app.Path(app.TasksPath, id, action), 0, request, task)
	if err != nil {
		return err
	}
	return a.Print(raw, func() error {
		_, err := fmt.Fprintf(a.Stdout, "Task %s is now %s.\n", task.ID, task.Status)
		return err
	})
}
