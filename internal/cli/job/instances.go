package job

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// followInstances waits until all instances of a job run and are healthy, or have ended where they end, or until one
// needs a person.
func followInstances(ctx context.Context, a *app.App, s *app.Client, d *api.JobDefinition) error {
	_, _ = fmt.Fprintf(a.Storyteller(), "Job %s starts its instances.\n", d.Job)
	name, problem := nameOf(d), ""
	var all *api.JobInstances
	err := app.Await(ctx, app.Forever, func() (_ bool, err error) {
		if all, err = s.Jobs.Instances(ctx, name); err != nil {
			return false, err
		}
		var ready bool
		ready, problem = judge(all, d)
		return ready || problem != "", nil
	})
	if err != nil {
		return app.GoesOn(err, "job "+name, "mainstay job get "+name, "mainstay job stop "+name)
	}
	if err = s.Print(func() error { return printInstances(a, all) }); problem != "" {
		err = errors.Join(err, app.IncompleteError("%s", problem))
	}
	return err
}

// judge reports whether all instances of a job are ready, and what needs a person.
func judge(all *api.JobInstances, d *api.JobDefinition) (bool, string) {
	ready, problem := 0, ""
	r := all.Deployment
	switch {
	case r == nil:
	case r.Status == api.DeploymentWaiting:
		problem = "the canaries are healthy: let the others follow with mainstay job promote " + nameOf(d)
	case r.Status == api.DeploymentFailed:
		problem = fmt.Sprintf("the deployment of version %d has failed: %s", r.Version, r.Reason)
	}
	for n := range all.Instances {
		switch i := &all.Instances[n]; {
		case i.Health == api.InstancePassing && d.Type != api.JobSysbatch, i.Status == api.StepCompleted:
			ready++
		case i.Status == api.StepBlocked, i.Status == api.StepFailed && d.Type == api.JobSysbatch:
			problem = fmt.Sprintf("instance %s is %s: %s", i.Name, i.Status, i.Why)
		}
	}
	return ready == all.Wanted && ready > 0 && (r == nil || !r.Active()), problem
}

func printInstances(a *app.App, all *api.JobInstances) error {
	if all == nil {
		return nil
	}
	header := []string{"INSTANCE", "STATUS", "HEALTH", "AGENT", "ADDRESS", "RESTARTS", "VERSION", "STARTED", "WHY"}
	err := app.PrintTable(a, all.Instances, "The job has no instances.", header, func(i *api.JobInstance) []any {
		status := string(i.Status)
		if i.Open() && i.Stopping != "" {
			status = "stopping"
		} else if i.Canary {
			status += ", canary"
		}
		return []any{i.Name, status, i.Health, i.Agent, i.Address, max(0, i.Attempts-1), i.Version, i.Since,
			whyOf(a, i)}
	})
	if err == nil {
		if help := helpOn(all.Instances); help != "" {
			err = a.Sayf("\n%s\n", help)
		} else {
			err = a.Say("")
		}
	}
	return err
}

// whyOf is why an instance does not run, what was tried, and when it is tried again.
func whyOf(a *app.App, i *api.JobInstance) string {
	if i.Open() && i.Stopping != "" {
		return i.Stopping
	}
	why := []string{i.Why}
	if s := i.PolicyState; s != nil && i.Status != api.StepRunning {
		var tried []string
		if s.ActiveRestarts > 0 {
			tried = append(tried, api.Count(s.ActiveRestarts, "restart"))
		}
		if s.ActiveReschedules > 0 {
			tried = append(tried, api.Count(s.ActiveReschedules, "move"))
		}
		if len(tried) > 0 {
			why = append(why, "so far "+strings.Join(tried, ", "))
		}
	}
	if !i.NextAt.IsZero() {
		why = append(why, "next try "+a.Ago(&i.NextAt))
	}
	return api.Reasons(why...)
}

// helpOn names the commands with which a person helps instances on that wait for a decision.
func helpOn(instances []api.JobInstance) string {
	var b strings.Builder
	for n := range instances {
		switch i := &instances[n]; {
		case i.Status != api.StepBlocked:
		case i.RecoveryStatus == "review":
			fmt.Fprintf(&b, "Decide about instance %s:  mainstay task review %s --decision rerun|completed|failed\n", i.Name,
				i.TaskID)
		default:
			fmt.Fprintf(&b, "Look at instance %s:  mainstay task get %s\n", i.Name, i.TaskID)
		}
	}
	return b.String()
}

func deploymentCommand(a *app.App) *cobra.Command {
	return a.Call(&cobra.Command{
		Use: "deployment NAME", Short: "Show how new versions of a job take the place of those before",
		Args: app.Exactly("a job's name"), Example: "  mainstay job deployment ranker",
	}, func(ctx context.Context, s *app.Client, args []string) error {
		j, err := s.Jobs.Get(ctx, args[0], 0)
		if err != nil {
			return err
		}
		header := []string{"VERSION", "STATUS", "HEALTHY INSTANCES", "STARTED", "BY", "WHY"}
		return a.Print(map[string]any{"job": j.Name, "deployments": j.Deployments}, func() error {
			err := app.PrintTable(a, j.Deployments, "The job has no deployments: give it update.", header,
				func(r *api.Deployment) []any {
					counts := make([]string, len(r.Counts))
					for n, c := range r.Counts {
						counts[n] = fmt.Sprintf("version %d: %d of %d", c.Version, c.Healthy, c.Instances)
					}
					why := r.Reason
					if r.RevertedTo > 0 {
						why += fmt.Sprintf("; version %d is in force again", r.RevertedTo)
					}
					return []any{r.Version, r.Status, counts, r.StartedAt, r.By, why}
				})
			r := (*job.Job)(&j.JobState).Deployment()
			if err == nil && r != nil && r.TaskID != "" {
				err = a.Sayf("\nSee what failed:  mainstay task get %[1]s, mainstay task logs %[1]s\n", r.TaskID)
			}
			switch {
			case err != nil || r == nil:
			case r.Status == api.DeploymentWaiting:
				err = a.Sayf("\nLet the others follow:  mainstay job promote %s\n", j.Name)
			case r.Status == api.DeploymentFailed && j.RevertsTo > 0:
				err = a.Sayf("\nGo back to version %d:  mainstay job revert %s\n", j.RevertsTo, j.Name)
			}
			return err
		})
	})
}

func scaleCommand(r *app.Resource[client.Jobs]) *cobra.Command {
	var count int
	return app.Tell(r, &cobra.Command{
		Use: "scale NAME COUNT", Short: "Say how many instances a service has",
		Example: "  mainstay job scale ranker 5",
		Args: func(c *cobra.Command, args []string) (err error) {
			if err = app.Exactly(r.ID, "how many instances")(c, args); err != nil {
				return err
			}
			if count, err = strconv.Atoi(args[1]); err != nil || count < 0 || count > job.MaxCount {
				return app.UsageError("COUNT must be from 0 to %d", job.MaxCount)
			}
			return nil
		},
	}, nil, func(jobs client.Jobs, ctx context.Context, name string, _ struct{}) (*api.Job, error) {
		return jobs.Scale(ctx, name, count)
	}, func(name string, j *api.Job) string {
		return fmt.Sprintf("Job %s is to have %s.%s", name, api.Count(count, "instance"), halted(j))
	})
}

func restartCommand(a *app.App) *cobra.Command {
	var reason string
	command := a.Call(&cobra.Command{
		Use: "restart NAME INSTANCE", Short: "Restart an instance of a job; the others go on",
		Args:    app.Exactly("a job's name", "an instance's number, or its agent"),
		Example: "  mainstay job restart ranker 0",
	}, func(ctx context.Context, s *app.Client, args []string) error {
		if err := s.Jobs.Restart(ctx, args[0], args[1], reason); err != nil {
			return err
		}
		return a.Print(map[string]string{"job": args[0], "restarted": args[1]}, func() error {
			return a.Sayf("Instance %s of job %s is restarted.\n", args[1], args[0])
		})
	})
	command.Flags().StringVar(&reason, "reason", "", "why; kept with its task")
	return command
}
