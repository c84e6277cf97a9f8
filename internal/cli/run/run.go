// Package run has the commands of runs of jobs.
package run

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// Command is the group of runs.
func Command(a *app.App) *cobra.Command {
	r := &app.Resource[client.Runs]{App: a, Of: func(c *client.Client) client.Runs { return c.Runs },
		Group: "run", Arg: "RUN", ID: "a run's id", Sample: "r-06f3…", Title: "Run",
		Next: "Follow it with: mainstay run watch", Reason: "why; kept with the run", Why: "new disks"}
	return a.GroupOf(&cobra.Command{Use: "run", Short: "See and steer runs of jobs"},
		app.List(r, &cobra.Command{
			Use: "list", Short: "List runs, newest first",
			Example: "  mainstay run list --job nightly\n  mainstay run list --status blocked",
		}, listFlags, client.Runs.List, printRuns),
		getCommand(r), watchCommand(a),
		app.Tell(r, &cobra.Command{
			Use: "pause RUN", Short: "Pause a run: nothing new begins",
			Example: `  mainstay run pause r-06f3… --mode finish --reason "new disks"`,
		}, func(c *cobra.Command, in *api.PauseRunRequest) {
			c.Flags().StringVar((*string)(&in.Mode), "mode", "",
				"stop (default): tasks under way stop, and go on afterwards; finish: they finish")
			r.ReasonFlag(c, &in.Reason)
		}, client.Runs.Pause, func(id string, _ *api.Run) string { return r.Then(id, "is being paused") }),
		app.Steer(r, "resume", "Let a paused run go on", "goes on", client.Runs.Resume),
		app.Steer(r, "cancel", "Cancel a run", "is being cancelled", client.Runs.Cancel),
		retryCommand(r), stepCommand(r))
}

func listFlags(c *cobra.Command, q *client.RunQuery) {
	flags := c.Flags()
	flags.StringVar(&q.Job, "job", "", "only of this job")
	flags.StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&q.Tenant, "tenant", "", "only of this tenant")
	flags.StringVar((*string)(&q.Status), "status", "",
		"only with this status: running, pausing, paused, blocked, completed, partial, failed or cancelled")
}

func printRuns(a *app.App, runs []api.RunEntry) error {
	header := []string{"RUN", "JOB", "VERSION", "CLUSTER", "STATUS", "STARTED", "TOOK"}
	return app.PrintTable(a, runs, "There are no such runs.", header, func(r *api.RunEntry) []any {
		return []any{r.ID, r.Job, r.JobVersion, r.Cluster, r.Status, r.StartedAt, app.Took(r.StartedAt, r.EndedAt)}
	})
}

func getCommand(r *app.Resource[client.Runs]) *cobra.Command {
	return app.Do(r, &cobra.Command{
		Use: "get RUN", Short: "Tell a run's story: its steps, who ran them, and what a person may do",
		Example: "  mainstay run get r-06f3… --wait",
	}, func(c *cobra.Command, wait *time.Duration) {
		app.WaitFlag(c, wait, "the run has ended or needs a person")
	}, client.Runs.Get, app.PrintRun)
}

func watchCommand(a *app.App) *cobra.Command {
	return a.Call(&cobra.Command{
		Use: "watch RUN", Short: "Follow a run until it has ended or needs a person", Args: app.Exactly("a run's id"),
		Example: "  mainstay run watch r-06f3…",
		Long:    "Follow a run until it has ended or needs a person. The exit code is 6 unless it completed.",
	}, func(ctx context.Context, c *app.Client, args []string) error { return c.FollowRun(ctx, args[0]) })
}

func retryCommand(r *app.Resource[client.Runs]) *cobra.Command {
	return app.Tell(r, &cobra.Command{
		Use: "retry RUN", Short: "Run again what has not succeeded of a run that has ended",
		Example: "  mainstay run retry r-06f3… --from merge",
		Long: `Run again what has not succeeded of a run that has ended, as a new run. With --from, also that step and all
that come after it. Sent again, it is the same run; if that failed too, retry it. Steps of a run that has not ended
are retried with: mainstay run step retry RUN STEP`,
	}, func(c *cobra.Command, in *api.RetryRunRequest) {
		c.Flags().StringVar(&in.From, "from", "", "run this step and all after it again, even if they succeeded")
		c.Flags().StringVar(&in.Reason, "reason", "", "why")
	}, client.Runs.Retry, func(id string, run *api.Run) string {
		if run.Duplicate {
			return r.Then(run.ID, "already repeats "+id)
		}
		return r.Then(run.ID, "repeats "+id)
	})
}

func stepCommand(r *app.Resource[client.Runs]) *cobra.Command {
	command := &cobra.Command{Use: "step", Short: "Decide about a step of a run"}
	for _, action := range []struct {
		api.StepAction
		short, then string
	}{
		{api.RetryStep, "Run a failed step again", "runs again"},
		{api.SkipStep, "Go on without a step", "is skipped"},
		{api.CompleteStep, "Take a step for done, because it was done by other means", "counts as completed"},
		{api.FailStep, "Give a step up", "counts as failed"},
		{api.ApproveStep, "Approve a step that waits for it", "is approved"},
		{api.RejectStep, "Reject a step that waits for approval: it fails", "is rejected"},
	} {
		var in api.StepRequest
		var output string
		one := r.Call(&cobra.Command{
			Use: string(action.StepAction) + " RUN STEP", Short: action.short,
			Args: app.Exactly("a run's id", "a step's id"),
		}, func(ctx context.Context, s *app.Client, args []string) (err error) {
			if in.Output, err = app.ReadJSON("--output-value", output, nil); err != nil {
				return err
			}
			if _, err := s.Runs.Step(ctx, args[0], args[1], action.StepAction, in); err != nil {
				return err
			}
			return s.Sayf("Step %s %s. Follow the run with: mainstay run watch %s\n", args[1], action.then, args[0])
		})
		r.ReasonFlag(one, &in.Reason)
		if action.StepAction == api.CompleteStep {
			one.Flags().StringVar(&output, "output-value", "", "the step's output: JSON, or @FILE")
			one.Flags().IntVar(&in.Attempt, "attempt", 0, "take the result of this attempt, which the step's check refused")
		}
		command.AddCommand(one)
	}
	return command
}
