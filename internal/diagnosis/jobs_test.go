package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

func TestOfJobs(t *testing.T) {
	t.Parallel()
	lacks := func(job string, healthy int) JobFacts {
		return JobFacts{Job: job, Healthy: healthy, Wanted: 3, Lacks: "instance 0 is failing", Since: noon}
	}
	failed := JobFacts{Job: "f", Failed: 2, FailedWhy: "it crashes", DeployedAt: noon}
	reverted := failed
	reverted.RevertedTo = 1
	for name, c := range map[string]struct {
		jobs []JobFacts
		want []api.Problem
	}{
		"well": {jobs: []JobFacts{{Job: "a"}}},
		"one": {jobs: []JobFacts{{Job: "a"}, lacks("b", 1)}, want: []api.Problem{{
			Severity: api.SeverityWarning, Kind: api.ProblemJob, Jobs: []string{"b"}, What: "job b of cluster c has 1 of 3 healthy instances",
			Why: "instance 0 is failing", Since: since(noon),
			Do: "See why each instance does not run, and when it is tried again: mainstay job get b"}}},
		"some, and one without any": {jobs: []JobFacts{lacks("a", 1), lacks("b", 0), lacks("d", 2)}, want: []api.Problem{
			{Severity: api.SeverityCritical, Kind: api.ProblemJob, Jobs: []string{"b"},
				What: "job b of cluster c has 0 of 3 healthy instances", Why: "instance 0 is failing", Since: since(noon),
				Do: "See why each instance does not run, and when it is tried again: mainstay job get b"},
			{Severity: api.SeverityWarning, Kind: api.ProblemJob, Jobs: []string{"a", "d"}, Why: "a, d",
				What: "2 jobs of cluster c have fewer healthy instances than they are to have",
				Do:   "See which, and why: mainstay job list --troubled --cluster c"}}},
		"not deployed": {jobs: []JobFacts{failed}, want: []api.Problem{{
			Severity: api.SeverityWarning, Kind: api.ProblemDeployment, Jobs: []string{"f"}, Why: "it crashes", Since: since(noon),
			What: "version 2 of job f of cluster c could not be deployed",
			Do:   "Apply a version that works, or go back: mainstay job deployment f, mainstay job revert f"}}},
		"reverted": {jobs: []JobFacts{reverted}, want: []api.Problem{{
			Severity: api.SeverityWarning, Kind: api.ProblemDeployment, Jobs: []string{"f"}, Why: "it crashes", Since: since(noon),
			What: "version 2 of job f of cluster c could not be deployed, and version 1 was put in force again",
			Do:   "Apply a version that works. See what happened: mainstay job deployment f"}}},
		"not scheduled": {jobs: []JobFacts{{Job: "s", Unscheduled: "schedule 1 of 1 cannot be written"}}, want: []api.Problem{{
			Severity: api.SeverityWarning, Kind: api.ProblemSchedule, Jobs: []string{"s"}, Why: "schedule 1 of 1 cannot be written",
			What: "the schedules of job s of cluster c are not as its definition has them",
			Do:   "Correct its definition and apply it, or delete it: mainstay job apply FILE, mainstay job delete s. It is tried again every 10 minutes."}}},
		"waits": {jobs: []JobFacts{{Job: "w", Waits: 4, DeployedAt: noon}}, want: []api.Problem{{
			Severity: api.SeverityNotice, Kind: api.ProblemDeployment, Jobs: []string{"w"}, Since: since(noon),
			What: "the canaries of version 4 of job w of cluster c wait for their promotion",
			Do:   "Decide: mainstay job promote w, or mainstay job fail w"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range c.want {
				c.want[i].Cluster, c.want[i].Count = "c", int64(len(c.want[i].Jobs))
			}
			require.Equal(t, c.want, OfJobs("c", c.jobs))
		})
	}
	many := make([]JobFacts, 7)
	for i := range many {
		many[i] = lacks(string(rune('a'+i)), 0)
	}
	p := OfJobs("c", many)
	require.Len(t, p, 1)
	require.Equal(t, "a, b, c, d, e and 2 more", p[0].Why)
	require.EqualValues(t, 7, p[0].Count)
}
