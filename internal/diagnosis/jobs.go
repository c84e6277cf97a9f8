package diagnosis

import (
	"fmt"
	"time"

	"mainstay.dev/sdk/api"
)

// JobFacts are the facts about a job. With nothing but its name, all is well.
type JobFacts struct {
	Job string
	// Lacks says which instances are not healthy, since when if that is known; empty: none that should be.
	Lacks           string
	Healthy, Wanted int
	Since           time.Time
	// Failed is the version whose deployment failed, and RevertedTo the one that was put in force again, if one was;
	// Waits is the version whose canaries wait for their promotion. 0: there is none.
	Failed, RevertedTo, Waits int
	FailedWhy                 string
	DeployedAt                time.Time // when the deployment failed, or began
	Unscheduled               string    // why its schedules cannot be written; empty: they are
}

// OfJobs is about services and system jobs of a cluster that lack healthy instances, and about deployments of theirs
// that have failed or wait for a person; and about jobs whose schedules cannot be written.
func OfJobs(cluster string, jobs []JobFacts) []api.Problem {
	var none, fewer, failed, waits, unscheduled []JobFacts
	for i := range jobs {
		f := jobs[i]
		switch {
		case f.Lacks == "":
		case f.Healthy == 0:
			none = append(none, f)
		default:
			fewer = append(fewer, f)
		}
		if f.Failed > 0 {
			failed = append(failed, f)
		}
		if f.Waits > 0 {
			waits = append(waits, f)
		}
		if f.Unscheduled != "" {
			unscheduled = append(unscheduled, f)
		}
	}
	lacking := func(f *JobFacts) api.Problem {
		return api.Problem{
			Since: since(f.Since),
			What:  fmt.Sprintf("job %s of cluster %s has %d of %d healthy instances", f.Job, cluster, f.Healthy, f.Wanted),
			Why:   f.Lacks,
			Do:    "See why each instance does not run, and when it is tried again: mainstay job get " + f.Job,
		}
	}
	var problems []api.Problem
	add := func(severity api.Severity, kind api.ProblemKind, found []JobFacts, several string,
		one func(*JobFacts) api.Problem) {
		if len(found) == 0 {
			return
		}
		p := api.Problem{}
		if len(found) == 1 {
			p = one(&found[0])
		}
		for i := range found {
			if len(p.Jobs) < namedInProblem {
				p.Jobs = append(p.Jobs, found[i].Job)
			}
		}
		if n := len(found); n > 1 {
			p.What = fmt.Sprintf("%d jobs of cluster %s %s", n, cluster, several)
			p.Why = listOf(p.Jobs, n)
			if n > len(p.Jobs) {
				p.Why += fmt.Sprintf(" and %d more", n-len(p.Jobs))
			}
			p.Do = "See which, and why: mainstay job list --troubled --cluster " + cluster
			if kind == api.ProblemSchedule {
				p.Do = "See why, and correct each: mainstay job get " + p.Jobs[0]
			}
		}
		p.Severity, p.Kind, p.Cluster, p.Count = severity, kind, cluster, int64(len(found))
		problems = append(problems, p)
	}
	add(api.SeverityCritical, api.ProblemJob, none, "have no healthy instance", lacking)
	add(api.SeverityWarning, api.ProblemJob, fewer, "have fewer healthy instances than they are to have", lacking)
	add(api.SeverityWarning, api.ProblemSchedule, unscheduled, "have schedules that cannot be written",
		func(f *JobFacts) api.Problem {
			return api.Problem{
				What: fmt.Sprintf("the schedules of job %s of cluster %s are not as its definition has them", f.Job, cluster),
				Why:  f.Unscheduled,
				Do: "Correct its definition and apply it, or delete it: mainstay job apply FILE, mainstay job delete " + f.Job +
					". It is tried again every 10 minutes.",
			}
		})
	add(api.SeverityWarning, api.ProblemDeployment, failed, "could not be deployed", func(f *JobFacts) api.Problem {
		p := api.Problem{Since: since(f.DeployedAt), Why: f.FailedWhy}
		p.What = fmt.Sprintf("version %d of job %s of cluster %s could not be deployed", f.Failed, f.Job, cluster)
		if f.RevertedTo > 0 {
			p.What += fmt.Sprintf(", and version %d was put in force again", f.RevertedTo)
			p.Do = "Apply a version that works. See what happened: mainstay job deployment " + f.Job
			return p
		}
		p.Do = fmt.Sprintf("Apply a version that works, or go back: mainstay job deployment %s, mainstay job revert %s",
			f.Job, f.Job)
		return p
	})
	add(api.SeverityNotice, api.ProblemDeployment, waits, "have healthy canaries that wait for their promotion",
		func(f *JobFacts) api.Problem {
			return api.Problem{
				Since: since(f.DeployedAt),
				What: fmt.Sprintf("the canaries of version %d of job %s of cluster %s wait for their promotion", f.Waits,
					f.Job, cluster),
				Do: fmt.Sprintf("Decide: mainstay job promote %s, or mainstay job fail %s", f.Job, f.Job),
			}
		})
	return problems
}
