package task

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/array"
	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

func rerunCommand(a *app.App) *cobra.Command {
	var s app.Submission
	var wait time.Duration
	var command *cobra.Command
	command = a.Call(&cobra.Command{
		Use:   "rerun ID [flags] [-- COMMAND ARGUMENT…]",
		Short: "Run a task again as a new task, also with another payload",
		Long: `Submit a new task like one that has ended, or is a dead letter: of the same type, with the same payload (or another
one), cluster, labels, retries and other settings. It begins at once. The old task stays as it is; each names the other.
Any retry safety allows it, since a person asks.

A step of a run (RUN~STEP) and an element of an array (ARRAY~.NUMBER) become a task of their own, with the values that
they had; their run or array does not see it. To run them again in their place, use: mainstay run retry, mainstay array
retry. To give a dead letter a fresh set of attempts, use: mainstay task retry.`,
		Example: `  mainstay task rerun t-06… --wait
  mainstay task rerun t-06… --payload @scene.json
  mainstay task rerun t-06… -- ./report.sh --year 2026
  mainstay task rerun r-06…~build`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || command.ArgsLenAtDash() == 0 {
				return app.UsageError("give a task's id")
			}
			return nil
		},
	}, func(ctx context.Context, c *app.Client, args []string) error {
		old, err := withTask(ctx, c.Tasks, args[0], func(id string) (*api.Task, error) {
			return c.Tasks.Get(ctx, id, client.WithPayload)
		})
		if err != nil {
			return err
		}
		request := &api.TaskRequest{TaskSpec: api.TaskSpec{Type: old.Type, Cluster: old.Cluster}}
		err = s.TakePayload(request, a.Stdin, args[1:], command.ArgsLenAtDash()-1)
		if err == nil && request.Payload != nil {
			err = s.CheckPayload(request)
		}
		if err != nil {
			return err
		}
		task, err := c.Tasks.Rerun(ctx, old.ID, api.RerunTaskRequest{Payload: request.Payload})
		begun := time.Now()
		if err != nil {
			return err
		}
		for _, note := range rerunNotes(old) {
			fmt.Fprintln(a.Stderr, note)
		}
		return follow(ctx, a, c, task, wait, begun)
	})
	s.PayloadFlags(command)
	app.WaitFlag(command, &wait, untilSettled)
	return command
}

// rerunNotes are what a person should know who runs a task again.
func rerunNotes(old *api.Task) (notes []string) {
	if old.Spec != nil && old.Spec.Safety() != api.Idempotent {
		notes = append(notes, fmt.Sprintf("Task %s is %s: what it did may be done twice now.", old.ID, old.Spec.Safety()))
	}
	if run, step, _, ok := job.CutTaskID(old.ID); ok {
		notes = append(notes, fmt.Sprintf("Run %[1]s does not see it. To run the step again in the run: mainstay run retry %[1]s "+
			"(while the run is open: mainstay run step retry %[1]s %[2]s)", run, step))
	} else if of, number, ok := array.ElementOf(old.ID); ok {
		notes = append(notes, fmt.Sprintf(
			"Array %[1]s does not see it. To run the element again in the array, while it is open: mainstay array retry %[1]s --element %[2]d",
			of, number))
	} else if old.Status == api.TaskDeadLetter {
		notes = append(notes, fmt.Sprintf(
			"Task %[1]s stays a dead letter. To give it up: mainstay task discard %[1]s --reason \"ran again\"", old.ID))
	}
	return notes
}
