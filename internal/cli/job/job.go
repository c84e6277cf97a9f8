// Package job has the commands of jobs.
package job

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// Command is the group of jobs.
func Command(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use: "job", Short: "Define work in steps, or services, and run it",
		Long: `Define work in steps, and run it. A definition, in YAML or JSON, says what the steps of a job are and which
come after which; each run of the job carries them out on the agents of its cluster. See runs with: mainstay run

A job of type service, system or sysbatch has instances instead of steps: it runs as long as it is there.`,
	}
	r := &app.Resource[client.Jobs]{App: a, Of: func(c *client.Client) client.Jobs { return c.Jobs },
		Group: "job", Arg: "NAME", ID: "a job's name", Sample: "nightly", Title: "Job",
		Reason: "why; kept with the job", Why: "new disks"}
	return a.GroupOf(command,
		runCommand(a), applyCommand(a), planCommand(a), validateCommand(a), schemaCommand(a), listCommand(r),
		getCommand(a), dispatchCommand(a),
		app.Steer(r, "pause", "Stop a job from starting runs", "is paused: it starts nothing, and what runs goes on",
			client.Jobs.Pause),
		app.Steer(r, "resume", "Let a paused or stopped job start runs or instances again", "goes on", client.Jobs.Resume),
		app.Steer(r, "stop", "Stop the instances of a job", "stops its instances", client.Jobs.Stop),
		deploymentCommand(a),
		app.Steer(r, "promote", "Let all instances of a job follow its healthy canaries", "replaces its other instances",
			client.Jobs.Promote),
		app.Steer(r, "fail", "End the deployment of a job as failed", "has ended its deployment",
			client.Jobs.FailDeployment),
		scaleCommand(r), restartCommand(a), versionsCommand(r), revertCommand(r),
		app.Delete(r, &cobra.Command{
			Use: "delete NAME", Short: "Delete a job with its schedules; its runs go on",
			Example: "  mainstay job delete nightly",
		}, "deleted", "", client.Jobs.Delete))
}

// validated is one checked definition.
type validated struct {
	File     string             `json:"file"`
	Valid    bool               `json:"valid"`
	Problems []document.Problem `json:"problems,omitempty"`
	Warnings []string           `json:"warnings,omitempty"`
	Plan     *job.Plan          `json:"plan,omitempty"`
}

func validateCommand(a *app.App) *cobra.Command {
	command := &cobra.Command{
		Use: "validate FILE...", Short: "Check definitions, without a server",
		Long: `Check definitions of jobs. Every problem is printed with file, line and column, as editors read it, and with
what to write instead. - is the standard input. The exit code is 2 where a definition is wrong.`,
		Example: "  mainstay job validate examples/jobs/pipeline.yaml\n  mainstay job validate *.yaml -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return app.UsageError("needs the file of a definition, or - for the standard input")
			}
			return nil
		},
		RunE: func(command *cobra.Command, files []string) error {
			results, wrong := make([]validated, len(files)), 0
			for i, file := range files {
				text, err := read(command.InOrStdin(), file)
				if err != nil {
					return err
				}
				if results[i] = validate(file, text); !results[i].Valid {
					wrong++
				}
			}
			err := a.Print(map[string]any{"files": results}, func() error { return say(a, results) })
			if err == nil && wrong > 0 {
				err = app.WithExit(app.ExitUsage, fmt.Errorf("%d of %d definitions cannot be used", wrong, len(files)))
			}
			return err
		},
	}
	a.OutputFlag(command)
	return command
}

func read(stdin io.Reader, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(file)
}

func validate(file string, text []byte) validated {
	d, plan, err := flow.Read(file, text)
	if wrong, ok := errors.AsType[*document.Error](err); ok {
		return validated{File: file, Problems: wrong.Problems}
	}
	return validated{File: file, Valid: true, Plan: plan, Warnings: flow.Warnings(d, plan)}
}

// say prints the problems, and for valid definitions the order of their steps.
func say(a *app.App, results []validated) error {
	var b strings.Builder
	for _, r := range results {
		for _, p := range r.Problems {
			fmt.Fprintln(a.Stderr, p)
		}
		if !r.Valid {
			continue
		}
		has := api.Count(len(r.Plan.Steps), "step")
		if len(r.Plan.Steps) == 0 {
			has = "instances"
		}
		fmt.Fprintf(&b, "%s is good: job %s has %s.\n", r.File, r.Plan.Job, has)
		for level, steps := range r.Plan.Levels() {
			fmt.Fprintf(&b, "  %d. %s\n", level+1, strings.Join(steps, ", "))
		}
		for _, w := range r.Warnings {
			fmt.Fprintf(&b, "  warning: %s\n", w)
		}
	}
	return a.Sayf("%s", b.String())
}
