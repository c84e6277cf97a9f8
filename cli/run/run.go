// Package run has the commands of runs of jobs.
package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/cli/app"
	"mainstay.dev/mainstay/client"
	"mainstay.dev/mainstay/job"
)

// Command is the group of runs.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "run", Short: "See and steer runs of jobs"}
	a.ServerFlag(command)
	command.AddCommand(listCommand(a), getCommand(a), watchCommand(a), pauseCommand(a),
		reasonCommand(a, "resume", "Let a paused run go on", "goes on", client.Runs.Resume),
		reasonCommand(a, "cancel", "Cancel a run", "is being cancelled", client.Runs.Cancel),
		retryCommand(a), stepCommand(a))
	return command
}

func listCommand(a *app.App) *cobra.Command {
	var q client.RunQuery
	command := app.LimitedList(a, &cobra.Command{
		Use: "list", Short: "List runs, newest first", Args: app.Exactly(),
		Example: "  mainstay run list --job nightly\n  mainstay run list --status blocked",
	}, func(s *client.Client) *client.List[api.RunEntry] { return s.Runs.List(q) }, printRuns)
	flags := command.Flags()
	flags.StringVar(&q.Job, "job", "", "only of this job")
	flags.StringVar(&q.Cluster, "cluster", "", "only of this cluster")
	flags.StringVar(&q.Tenant, "tenant", "", "only of this tenant")
	flags.StringVar((*string)(&q.Status), "status", "",
		"only with this status: running, pausing, paused, blocked, completed, partial, failed or cancelled")
	return command
}

func printRuns(a *app.App, runs []api.RunEntry) error {
	header := []string{"RUN", "JOB", "VERSION", "CLUSTER", "STATUS", "STARTED", "TOOK"}
	return app.PrintTable(a, runs, "There are no such runs.", header, func(r *api.RunEntry) []string {
		var took string
		if r.StartedAt != nil && r.EndedAt != nil {
			took = app.Roughly(r.EndedAt.Sub(*r.StartedAt))
		}
		return []string{r.ID, r.Job, fmt.Sprint(r.JobVersion), r.Cluster, string(r.Status), a.Ago(r.StartedAt), took}
	})
}

func getCommand(a *app.App) *cobra.Command {
	var wait time.Duration
	command := app.Show(a, &cobra.Command{
		Use: "get RUN", Short: "Tell a run's story: its steps, who ran them, and what a person may do",
		Args: app.Exactly("a run's id"), Example: "  mainstay run get r-06f3… --wait",
	}, func(ctx context.Context, s *client.Client, args []string) (*api.Run, error) {
		return s.Runs.Get(ctx, args[0], wait)
	}, app.PrintRun)
	app.WaitFlag(command, &wait, "the run has ended or needs a person")
	return command
}

func watchCommand(a *app.App) *cobra.Command {
	return a.Call(&cobra.Command{
		Use: "watch RUN", Short: "Follow a run until it has ended or needs a person", Args: app.Exactly("a run's id"),
		Example: "  mainstay run watch r-06f3…",
		Long:    "Follow a run until it has ended or needs a person. The exit code is 6 unless it completed.",
	}, func(ctx context.Context, s *app.Client, args []string) error {
		run, err := a.FollowRun(ctx, s.Client, args[0])
		if err != nil {
			return err
		}
		return errors.Join(a.Print(s.Answer, func() error {
			if err := a.Say(""); err != nil {
				return err
			}
			return app.PrintRun(a, run)
		}), app.RunEnd(run))
	})
}

func pauseCommand(a *app.App) *cobra.Command {
	var in api.PauseRunRequest
	command := a.Call(&cobra.Command{
		Use: "pause RUN", Short: "Pause a run: nothing new begins", Args: app.Exactly("a run's id"),
		Example: `  mainstay run pause r-06f3… --mode finish --reason "new disks"`,
	}, func(ctx context.Context, s *app.Client, args []string) error {
		return say(a, s, "is being paused", args[0])(s.Runs.Pause(ctx, args[0], in))
	})
	command.Flags().StringVar(
		(*string)(&in.Mode),
		"mode",
		"",
		"stop (default): tasks under way stop, and go on afterwards; finish: they finish",
	)
	command.Flags().StringVar(&in.Reason, "reason", "", "why; kept with the run")
	return command
}

func reasonCommand(
	a *app.App, word, short, then string,
	do func(r client.Runs, ctx context.Context, id, reason string) (*api.Run, error),
) *cobra.Command {
	var reason string
	command := a.Call(&cobra.Command{
		Use: word + " RUN", Short: short, Args: app.Exactly("a run's id"),
		Example: "  mainstay run " + word + " r-06f3… --reason \"new disks\"",
	},
		func(ctx context.Context, s *app.Client, args []string) error {
			return say(a, s, then, args[0])(do(s.Runs, ctx, args[0], reason))
		})
	command.Flags().StringVar(&reason, "reason", "", "why; kept with the run")
	return command
}

// say tells that something was done to a run.
func say(a *app.App, s *app.Client, then, id string) func(*api.Run, error) error {
	return func(_ *api.Run, err error) error {
		if err != nil {
			return err
		}
		return a.Print(s.Answer, func() error {
			return a.Sayf("Run %s %s. Follow it with: mainstay run watch %s\n", id, then, id)
		})
	}
}

func retryCommand(a *app.App) *cobra.Command {
	var in api.RetryRunRequest
	command := a.Call(&cobra.Command{
		Use: "retry RUN", Short: "Run again what has not succeeded of a run that has ended", Args: app.Exactly("a run's id"),
		Example: "  mainstay run retry r-06f3… --from merge",
		Long: `Run again what has not succeeded of a run that has ended, as a new run. With --from, also that step and all that come
after it. Sent again, it is the same run; if that failed too, retry it. Steps of a run that has not ended are retried
with: mainstay run step retry RUN STEP`,
	}, func(ctx context.Context, s *app.Client, args []string) error {
		run, err := s.Runs.Retry(ctx, args[0], in)
		if err != nil {
			return err
		}
		return a.Print(s.Answer, func() error {
			how := "repeats"
			if run.Duplicate {
				how = "already repeats"
			}
			return a.Sayf("Run %s %s %s. Follow it with: mainstay run watch %s\n", run.ID, how, args[0], run.ID)
		})
	})
	command.Flags().StringVar(&in.From, "from", "", "run this step and all after it again, even if they succeeded")
	command.Flags().StringVar(&in.Reason, "reason", "", "why")
	return command
}

func stepCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{Use: "step", Short: "Decide about a step of a run"}
	for _, action := range []struct {
		job.StepAction
		short, then string
	}{
		{job.RetryStep, "Run a failed step again", "runs again"},
		{job.SkipStep, "Go on without a step", "is skipped"},
		{job.CompleteStep, "Take a step for done, because it was done by other means", "counts as completed"},
		{job.FailStep, "Give a step up", "counts as failed"},
		{job.ApproveStep, "Approve a step that waits for it", "is approved"},
		{job.RejectStep, "Reject a step that waits for approval: it fails", "is rejected"},
	} {
		var in api.StepRequest
		var output string
		one := a.Call(&cobra.Command{
			Use: string(action.StepAction) + " RUN STEP", Short: action.short,
			Args: app.Exactly("a run's id", "a step's id"),
		}, func(ctx context.Context, s *app.Client, args []string) (err error) {
			if in.Output, err = app.ReadJSON("--output-value", output, nil); err != nil {
				return err
			}
			if _, err := s.Runs.Step(ctx, args[0], args[1], action.StepAction, in); err != nil {
				return err
			}
			return a.Print(s.Answer, func() error {
				return a.Sayf("Step %s %s. Follow the run with: mainstay run watch %s\n", args[1], action.then, args[0])
			})
		})
		one.Flags().StringVar(&in.Reason, "reason", "", "why; kept with the run")
		if action.StepAction == job.CompleteStep {
			one.Flags().StringVar(&output, "output-value", "", "the step's output: JSON, or @FILE")
			one.Flags().IntVar(&in.Attempt, "attempt", 0, "take the result of this attempt, which the step's check refused")
		}
		command.AddCommand(one)
	}
	return command
}
