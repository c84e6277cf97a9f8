package task

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

func discardCommand(r *app.Resource[client.Tasks]) *cobra.Command {
	return app.Do(r, &cobra.Command{
		Use: "discard ID --reason TEXT", Short: "Give a dead letter up",
		Long: "Give a dead letter up: it ends as failed now, and not when its retention does. " +
			"Its attempts and payload stay visible.",
		Example: `  mainstay task discard t-06… --reason "the customer is gone"`,
	}, app.ReasonFlag("why; the task says it afterwards (required)"),
		func(tasks client.Tasks, ctx context.Context, id, reason string) (*api.Task, error) {
			if strings.TrimSpace(reason) == "" {
				return nil, app.UsageError("say why with --reason")
			}
			return tasks.Discard(ctx, id, reason)
		}, printNow)
}

func priorityCommand(r *app.Resource[client.Tasks]) *cobra.Command {
	return app.Tell(r, &cobra.Command{
		Use: "priority ID PRIORITY", Short: "Change the priority of a task that has not ended",
		Long: `Change the priority of a task that has not ended: 1 (first) to 5 (last), or critical, high, normal, low or
background.

A task that waits for an agent is moved within about a second. What an agent runs already is not disturbed; the priority
then holds for later attempts.`,
		Example: `  mainstay task priority t-06… high --reason "the customer is waiting"`,
	}, func(c *cobra.Command, in *api.TaskPriorityRequest) {
		c.Args = app.PriorityArgs(r.ID, &in.Priority)
		r.ReasonFlag(c, &in.Reason)
	}, client.Tasks.SetPriority, func(_ string, t *api.Task) string {
		return fmt.Sprintf("Task %s has priority %s now; it is %s.", t.ID, t.PriorityName, t.Status)
	})
}

func reviewCommand(r *app.Resource[client.Tasks]) *cobra.Command {
	var result string
	return app.Do(r, &cobra.Command{
		Use:   "review ID --decision accept|rerun|completed|failed",
		Short: "Decide about a task that may not be safe to run again",
		Long: `Decide about a task that may not be safe to run again: its agent was lost, and nobody knows how far it came.

  accept     take the result that its agent brought after it had counted as lost: task get shows it
  rerun      it is safe: deliver it again
  completed  it was done: take --result as its result
  failed     give it up`,
		Example: `  mainstay task review t-06… --decision rerun --reason "no invoice was sent"`,
	}, func(c *cobra.Command, in *api.ReviewTaskRequest) {
		c.Flags().StringVar((*string)(&in.Decision), "decision", "", "accept, rerun, completed or failed")
		c.Flags().StringVar(&result, "result", "", "with completed: the result as JSON, @FILE, or - for standard input")
		r.ReasonFlag(c, &in.Reason)
		app.CheckFirst(c, func() (err error) {
			if err := in.Decision.Validate(); err != nil {
				return app.UsageError("--%w", err)
			}
			if in.Result, err = app.ReadJSON("--result", result, r.Stdin); err != nil {
				return err
			}
			if in.Result != nil && in.Decision != api.ReviewCompleted {
				return app.UsageError("--result belongs to --decision completed")
			}
			return nil
		})
	}, client.Tasks.Review, printNow)
}

// printNow says how a task stands after a change.
func printNow(a *app.App, task *api.Task) error {
	if task.Cancelling != nil {
		return a.Sayf("Task %s is %s and being cancelled: its agent stops its work first. See: mainstay task get %[1]s\n",
			task.ID, task.Status)
	}
	return a.Sayf("Task %s is now %s.\n", task.ID, task.Status)
}
