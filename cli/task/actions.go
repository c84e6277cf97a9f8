package task

import (
	"context"
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
	}, client.Tasks.Cancel)
}

func retryCommand(a *app.App) *cobra.Command {
	return reasonCommand(a, &cobra.Command{
		Use: "retry ID", Short: "Give a dead letter a fresh set of attempts",
		Example: `  mainstay task retry t-06… --reason "disk was full"`,
	}, client.Tasks.Retry)
}

func discardCommand(a *app.App) *cobra.Command {
	var reason string
	command := app.Show(a, &cobra.Command{
		Use: "discard ID --reason TEXT", Short: "Give a dead letter up",
		Long: "Give a dead letter up: it ends as failed now, and not when its retention does. " +
			"Its attempts and payload stay visible.",
		Example: `  mainstay task discard t-06… --reason "the customer is gone"`,
		Args:    app.Exactly("a task's id"),
	}, func(ctx context.Context, s *client.Client, args []string) (*api.Task, error) {
		if strings.TrimSpace(reason) == "" {
			return nil, app.UsageError("say why with --reason")
		}
		return withTask(ctx, s.Tasks, args[0], func(id string) (*api.Task, error) {
			return s.Tasks.Discard(ctx, id, reason)
		})
	}, printNow)
	command.Flags().StringVar(&reason, "reason", "", "why; the task says it afterwards (required)")
	return command
}

func priorityCommand(a *app.App) *cobra.Command {
	var request api.TaskPriorityRequest
	command := app.Show(a, &cobra.Command{
		Use: "priority ID PRIORITY", Short: "Change the priority of a task that has not ended",
		Long: `Change the priority of a task that has not ended: 1 (first) to 5 (last), or critical, high, normal, low or
background.

A task that waits for an agent is moved within about a second. What an agent runs already is not disturbed; the priority
then holds for later attempts.`,
		Example: `  mainstay task priority t-06… high --reason "the customer is waiting"`,
		Args:    app.Exactly("a task's id", "a priority"),
	}, func(ctx context.Context, s *client.Client, args []string) (_ *api.Task, err error) {
		if request.Priority, err = fleet.ParsePriority(args[1]); err != nil {
			return nil, app.WithExit(app.ExitUsage, err)
		}
		return withTask(ctx, s.Tasks, args[0], func(id string) (*api.Task, error) {
			return s.Tasks.SetPriority(ctx, id, request)
		})
	}, func(a *app.App, t *api.Task) error {
		return a.Sayf("Task %s has priority %s now; it is %s.\n", t.ID, t.PriorityName, t.Status)
	})
	command.Flags().StringVar(&request.Reason, "reason", "", "why; kept in the task's history")
	return command
}

func reasonCommand(
	a *app.App, command *cobra.Command,
	do func(s client.Tasks, ctx context.Context, id, reason string) (*api.Task, error),
) *cobra.Command {
	var reason string
	command.Args = app.Exactly("a task's id")
	command.Flags().StringVar(&reason, "reason", "", "why; kept in the task's history")
	return app.Show(a, command, func(ctx context.Context, s *client.Client, args []string) (*api.Task, error) {
		return withTask(ctx, s.Tasks, args[0], func(id string) (*api.Task, error) {
			return do(s.Tasks, ctx, id, reason)
		})
	}, printNow)
}

func reviewCommand(a *app.App) *cobra.Command {
	var request api.ReviewTaskRequest
	var result string
	command := app.Show(a, &cobra.Command{
		Use:   "review ID --decision accept|rerun|completed|failed",
		Short: "Decide about a task that may not be safe to run again",
		Long: `Decide about a task that may not be safe to run again: its agent was lost, and nobody knows how far it came.

  accept     take the result that its agent brought after it had counted as lost: task get shows it
  rerun      it is safe: deliver it again
  completed  it was done: take --result as its result
  failed     give it up`,
		Example: `  mainstay task review t-06… --decision rerun --reason "no invoice was sent"`,
		Args:    app.Exactly("a task's id"),
	}, func(ctx context.Context, s *client.Client, args []string) (_ *api.Task, err error) {
		if err := request.Decision.Validate(); err != nil {
			return nil, app.UsageError("--%w", err)
		}
		if request.Result, err = app.ReadJSON("--result", result, a.Stdin); err != nil {
			return nil, err
		}
		if request.Result != nil && request.Decision != fleet.ReviewCompleted {
			return nil, app.UsageError("--result belongs to --decision completed")
		}
		return withTask(ctx, s.Tasks, args[0], func(id string) (*api.Task, error) {
			return s.Tasks.Review(ctx, id, request)
		})
	}, printNow)
	flags := command.Flags()
	flags.StringVar((*string)(&request.Decision), "decision", "", "accept, rerun, completed or failed")
	flags.StringVar(&result, "result", "", "with completed: the result as JSON, @FILE, or - for standard input")
	flags.StringVar(&request.Reason, "reason", "", "why; kept in the task's history")
	return command
}

// printNow says how a task stands after a change.
func printNow(a *app.App, task *api.Task) error {
	if task.Cancelling != nil {
		return a.Sayf(
			"Task %s is %s and being cancelled: its agent stops its work first. See: mainstay task get %[1]s\n",
			task.ID,
			task.Status,
		)
	}
	return a.Sayf("Task %s is now %s.\n", task.ID, task.Status)
}
