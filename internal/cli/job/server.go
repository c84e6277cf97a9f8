package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/flow"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// definition reads a file and checks it before it is sent: mistakes are reported with file and line.
func definition(a *app.App, file string) (d *api.JobDefinition, text []byte, err error) {
	if text, err = read(a.Stdin, file); err == nil {
		d, _, err = flow.Read(file, text)
	}
	return d, text, app.WithExit(app.ExitUsage, err)
}

// nameOf is the full name of a definition's job.
func nameOf(d *api.JobDefinition) string { return api.Qualify(d.Tenant, d.Job) }

func runCommand(a *app.App) *cobra.Command {
	var inputs map[string]string
	command := a.Call(&cobra.Command{
		Use: "run FILE", Short: "Apply a definition, start a run, and follow it", Args: app.Exactly("a definition's file"),
		Long: `Apply a definition, start a run of it, and follow the run until it has ended or needs a person. The exit
code is 6 unless it completed. A job with instances is followed until all of them are healthy, or those of a
sysbatch job have ended.`,
		Example: "  mainstay job run examples/jobs/nightly-embeddings.yaml -i bucket=docs",
	}, func(ctx context.Context, s *app.Client, args []string) error {
		d, text, err := definition(a, args[0])
		if err != nil {
			return err
		}
		r := api.DispatchRequest{}
		if r.Inputs, err = inputsOf(inputs, d.Inputs); err != nil {
			return err
		}
		if _, err := s.Jobs.Apply(ctx, nameOf(d), text, ""); err != nil {
			return err
		}
		if d.HasInstances() {
			return followInstances(ctx, a, s, d)
		}
		run, err := s.Jobs.Dispatch(ctx, nameOf(d), r)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(a.Storyteller(), "Run %s of job %s began.\n", run.ID, run.Job)
		return s.FollowRun(ctx, run.ID)
	})
	inputFlag(command, &inputs)
	return command
}

func inputFlag(command *cobra.Command, inputs *map[string]string) {
	app.PairsFlag(command.Flags(), inputs, "input", "i", "an input as NAME=VALUE; a value that is JSON, like 3, true, [1] "+
		"or '\"3\"', counts as such, unless the job wants text")
}

// inputsOf makes the inputs of a run from the given ones.
func inputsOf(given map[string]string, schema json.RawMessage) (json.RawMessage, error) {
	if given == nil {
		return nil, nil
	}
	inputs, err := flow.GivenInputs(schema, given)
	if err != nil {
		return nil, app.UsageError("--input: %w", err)
	}
	return inputs, nil
}

func applyCommand(a *app.App) *cobra.Command {
	var version int
	command := a.Call(&cobra.Command{
		Use: "apply FILE", Short: "Make a job, or a new version of it", Args: app.Exactly("a definition's file"),
		Example: "  mainstay job apply nightly.yaml\n  mainstay job apply nightly.yaml --if-version 3",
	}, func(ctx context.Context, s *app.Client, args []string) error {
		d, text, err := definition(a, args[0])
		if err != nil {
			return err
		}
		expected := ""
		if version > 0 {
			expected = strconv.Itoa(version)
		}
		j, err := s.Jobs.Apply(ctx, nameOf(d), text, expected)
		if err != nil {
			return err
		}
		next := "Start a run with: mainstay job dispatch"
		if d.HasInstances() {
			next = "See its instances with: mainstay job get"
		}
		return s.Sayf("Job %s is at version %d. %s %s\n", j.Name, j.Version, next, j.Name)
	})
	command.Flags().IntVar(&version, "if-version", 0, "only while this version is in force")
	return command
}

func planCommand(a *app.App) *cobra.Command {
	return a.Call(&cobra.Command{
		Use: "plan FILE", Short: "Say what applying a definition would change", Args: app.Exactly("a definition's file"),
		Example: "  mainstay job plan nightly.yaml",
	}, func(ctx context.Context, s *app.Client, args []string) error {
		d, text, err := definition(a, args[0])
		if err != nil {
			return err
		}
		p, err := s.Jobs.Plan(ctx, nameOf(d), text)
		if err != nil {
			return err
		}
		return s.Print(func() error { return printPlan(a, p) })
	})
}

func printPlan(a *app.App, p *api.JobPlan) error {
	var b strings.Builder
	switch {
	case p.Version == 0:
		fmt.Fprintf(&b, "Job %s is new.\n", p.Job)
	case !p.Changed:
		fmt.Fprintf(&b, "Nothing changes: job %s is at version %d with this definition.\n", p.Job, p.Version)
	default:
		fmt.Fprintf(&b, "Job %s would change from version %d to %d:\n", p.Job, p.Version, p.Version+1)
	}
	for _, change := range p.Changes {
		fmt.Fprintf(&b, "  %s\n", app.OneLine(change))
	}
	for i, steps := range p.Levels {
		fmt.Fprintf(&b, "  %d. %s\n", i+1, strings.Join(steps, ", "))
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(&b, "  warning: %s\n", app.OneLine(w))
	}
	return a.Sayf("%s", b.String())
}

func listCommand(r *app.Resource[client.Jobs]) *cobra.Command {
	troubled := false
	return app.List(r, &cobra.Command{
		Use: "list", Short: "List jobs", Example: "  mainstay job list\n  mainstay job list --troubled",
	}, func(c *cobra.Command, q *client.JobQuery) {
		c.Flags().StringVar(&q.Cluster, "cluster", "", "only of this cluster")
		c.Flags().StringVar(&q.Tenant, "tenant", "", "only of this tenant")
		c.Flags().BoolVar(&troubled, "troubled", false,
			"only services and system jobs that lack healthy instances, or whose deployment has failed, with why")
	}, func(j client.Jobs, q client.JobQuery) *client.List[api.JobEntry] {
		q.Troubled = troubled
		return j.List(q)
	}, func(a *app.App, jobs []api.JobEntry) error {
		if troubled {
			return printTroubled(a, jobs)
		}
		header := []string{"JOB", "TYPE", "CLUSTER", "VERSION", "HAS", "SCHEDULES", "STATE", "CREATED"}
		return app.PrintTable(a, jobs, "There are no jobs.", header, func(j *api.JobEntry) []any {
			return []any{j.Name, j.Type, j.Cluster, j.Version, hasOf(j), j.Schedules, stateOf(j), j.CreatedAt}
		})
	})
}

func printTroubled(a *app.App, jobs []api.JobEntry) error {
	header := []string{"JOB", "CLUSTER", "HEALTHY", "STATE", "WHY"}
	return app.PrintTable(a, jobs, "No job lacks instances, and no deployment has failed.", header,
		func(j *api.JobEntry) []any {
			why := j.Trouble.Why
			if r := j.Trouble.Failed; r != nil {
				why = api.Reasons(why, fmt.Sprintf("version %d could not be deployed: %s", r.Version, r.Reason))
			}
			return []any{j.Name, j.Cluster, fmt.Sprintf("%d of %d", j.Trouble.Healthy, j.Trouble.Wanted), stateOf(j), why}
		})
}

// hasOf is what the work of a job is made of.
func hasOf(j *api.JobEntry) string {
	switch {
	case j.Type == api.JobService:
		return api.Count(j.Count, "instance")
	case j.Type == api.JobSystem || j.Type == api.JobSysbatch:
		return "one on each agent"
	}
	return api.Count(j.Steps, "step")
}

func stateOf(j *api.JobEntry) string {
	switch {
	case j.Stopped:
		return "stopped"
	case j.Paused:
		return "paused"
	case j.Deployment != "" && j.Deployment != api.DeploymentSuccessful:
		return "deployment " + string(j.Deployment)
	}
	return "active"
}

func getCommand(a *app.App) *cobra.Command {
	var version int
	command := a.Call(&cobra.Command{
		Use: "get NAME", Short: "Show a job, its instances and its definition", Args: app.Exactly("a job's name"),
		Example: "  mainstay job get nightly",
	}, func(ctx context.Context, s *app.Client, args []string) error {
		j, err := s.Jobs.Get(ctx, args[0], version)
		if err != nil {
			return err
		}
		answer := s.Answer
		var instances *api.JobInstances
		if j.Definition.HasInstances() {
			if instances, err = s.Jobs.Instances(ctx, args[0]); err != nil {
				return err
			}
		}
		return a.Print(answer, func() error {
			return errors.Join(printInstances(a, instances), printJob(a, j, instances))
		})
	})
	command.Flags().IntVar(&version, "version", 0, "show the definition of this version")
	return command
}

func printJob(a *app.App, j *api.Job, all *api.JobInstances) error {
	state, next, active := "active", []string{}, []string{}
	if p := cmp.Or(j.Stopped, j.Paused); p != nil {
		state = "paused by " + p.By + ", " + a.Ago(&p.At)
		if j.Stopped != nil {
			state = "stopped" + strings.TrimPrefix(state, "paused")
		}
		if p.Reason != "" {
			state += ": " + p.Reason
		}
	}
	if why := (*job.Job)(&j.JobState).Waiting(); why != "" && j.Stopped == nil && j.Paused == nil {
		state = why
	}
	for i := range min(3, len(j.NextTimes)) {
		next = append(next, j.NextTimes[i].UTC().Format(time.RFC3339))
	}
	for _, h := range j.Active {
		text := h.Run
		if h.Waiting {
			text += " (waits)"
		}
		active = append(active, text)
	}
	text, err := json.MarshalIndent(j.Definition, "", "  ")
	if err != nil {
		return err
	}
	err = a.Facts([][2]any{
		{"Job", j.Name}, {"Type", j.Type}, {"Version", j.Version}, {"Cluster", j.Cluster},
		{"State", state}, {"Deployment", deploymentOf(j.Name, all)},
		{"Not scheduled", j.Unscheduled}, {"Next runs", next}, {"Counted runs", active},
	})
	if err != nil {
		return err
	}
	return a.Sayf("\n%s\n", app.Printable(string(text)))
}

// deploymentOf is how the version in force is deployed, and what a person may do about it.
func deploymentOf(name string, all *api.JobInstances) string {
	if all == nil || all.Deployment == nil || all.Deployment.Status == api.DeploymentSuccessful {
		return ""
	}
	r := all.Deployment
	text := fmt.Sprintf("of version %d: %s", r.Version, r.Status)
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	switch r.Status {
	case api.DeploymentWaiting:
		text += " for mainstay job promote " + name
	case api.DeploymentFailed:
		text += "; see mainstay job deployment " + name
	}
	return text
}

func dispatchCommand(a *app.App) *cobra.Command {
	var inputs map[string]string
	var r api.DispatchRequest
	var wait bool
	command := a.Call(&cobra.Command{
		Use: "dispatch NAME", Short: "Start a run of a job", Args: app.Exactly("a job's name"),
		Example: "  mainstay job dispatch nightly -i bucket=docs --key today\n" +
			"  mainstay job dispatch nightly --start-at +2h --follow",
	}, func(ctx context.Context, s *app.Client, args []string) (err error) {
		if len(inputs) > 0 {
			j, err := s.Jobs.Get(ctx, args[0], 0)
			if err != nil {
				return err
			}
			var schema json.RawMessage
			if j.Definition != nil {
				schema = j.Definition.Inputs
			}
			if r.Inputs, err = inputsOf(inputs, schema); err != nil {
				return err
			}
		}
		run, err := s.Jobs.Dispatch(ctx, args[0], r)
		if err != nil {
			return err
		}
		if wait {
			_, _ = fmt.Fprintf(a.Storyteller(), "Run %s of job %s began.\n", run.ID, run.Job)
			return s.FollowRun(ctx, run.ID)
		}
		how := "began"
		if run.Duplicate {
			how = "was started with this key before; it is " + string(run.Status)
		} else if !r.StartAt.IsZero() {
			how = "begins at " + r.StartAt.UTC().Format(time.RFC3339)
		}
		return s.Sayf("Run %s %s. Follow it with: mainstay run watch %s\n", run.ID, how, run.ID)
	})
	inputFlag(command, &inputs)
	command.Flags().StringVar(&r.IdempotencyKey, "key", "", "one key starts one run, however often it is sent")
	a.TimeFlag(command.Flags(), "start-at", "when it begins: 2026-12-24T18:00:00Z, or +2h for in two hours",
		func(at time.Time) { r.StartAt = at })
	command.Flags().BoolVar(&wait, "follow", false, "follow the run until it has ended or needs a person")
	return command
}

func versionsCommand(r *app.Resource[client.Jobs]) *cobra.Command {
	return app.Get(r, &cobra.Command{
		Use: "versions NAME", Short: "List the versions of a job that are kept", Example: "  mainstay job versions nightly",
	}, client.Jobs.Versions, func(a *app.App, versions []api.JobVersion) error {
		header := []string{"VERSION", "APPLIED", "BY", "DEFINITION"}
		return app.PrintTable(a, versions, "There are no versions.", header, func(v *api.JobVersion) []any {
			definition := "its own"
			if v.Reverts > 0 {
				definition = fmt.Sprintf("of version %d", v.Reverts)
			}
			return []any{v.Version, v.At, v.By, definition}
		})
	})
}

// halted says that a change has no effect yet, since the job is paused or stopped.
func halted(j *api.Job) string {
	state := "stopped"
	switch {
	case j.Paused == nil && j.Stopped == nil:
		return ""
	case j.Stopped == nil:
		state = "paused"
	}
	return fmt.Sprintf(" It is %s: nothing begins until mainstay job resume %s", state, j.Name)
}

func revertCommand(r *app.Resource[client.Jobs]) *cobra.Command {
	return app.Tell(r, &cobra.Command{
		Use: "revert NAME [VERSION]", Short: "Put an earlier version in force again",
		Long: `Put an earlier version in force again. Without VERSION it is the last one before the present definition that
differs from it and, of a job with update, was healthy.`,
		Example: "  mainstay job revert nightly 3\n  mainstay job revert ranker",
	}, func(c *cobra.Command, version *int) {
		c.Args = func(c *cobra.Command, args []string) (err error) {
			if len(args) != 2 {
				return cobra.RangeArgs(1, 2)(c, args)
			}
			if *version, err = strconv.Atoi(args[1]); err != nil || *version < 1 {
				return app.UsageError("VERSION must be a number: see mainstay job versions %s", args[0])
			}
			return nil
		}
	}, client.Jobs.Revert, func(_ string, j *api.Job) string {
		earlier := "an earlier one"
		if v := (*job.Job)(&j.JobState).Find(j.Version); v != nil && v.Reverts > 0 {
			earlier = fmt.Sprintf("version %d", v.Reverts)
		}
		return fmt.Sprintf("Job %s is at version %d, with the definition of %s.%s", j.Name, j.Version, earlier, halted(j))
	})
}

func schemaCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of definitions, for editors", Args: app.Exactly(),
		Example: "  mainstay job schema > job.schema.json",
		RunE:    func(*cobra.Command, []string) error { return a.Say(string(flow.DefinitionSchema())) },
	}
}
