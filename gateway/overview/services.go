package overview

import (
	"context"
	"sync"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/diagnosis"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/sdk/api"
)

const (
	// servicePage is how many jobs are listed at a time.
	servicePage = 500
	// overviewJobs is how many jobs an overview asks how they stand.
	overviewJobs = 500
)

// toldDeployments are the statuses of deployments that somebody may have to do something about.
var toldDeployments = []api.DeploymentStatus{api.DeploymentRunning, api.DeploymentWaiting, api.DeploymentFailed}

// serviceReading is how the jobs with instances of a cluster stand.
type serviceReading struct {
	deployments map[api.DeploymentStatus]int // of the versions in force
	overdue     int                          // deployments that should have ended
	short       int                          // services with fewer instances that pass than asked for
}

// askedJob is a job in a list, with its own answer.
type askedJob struct {
	listed api.JobEntry
	says   job.Job
}

// askJobs lists the jobs and asks the wanted ones for their state: the newest most of them; 0: all. A job that does not
// answer has the zero state. more reports whether others would have been asked.
func (h *Handlers) askJobs(
	ctx context.Context, most int, wanted func(*api.JobEntry) bool,
) (asked []askedJob, more bool, err error) {
	query := rest.OfType(contract.JobWorkflow, contract.Equals("ExecutionStatus", "Running"))
	for token, left := []byte(nil), true; left && !more; left = len(token) > 0 {
		jobs, next, err := h.Store.Jobs().Page(ctx, query, servicePage, token)
		if err != nil {
			return nil, false, err
		}
		token = next
		for i := range jobs {
			if jobs[i].Stopped || !wanted(&jobs[i]) {
				continue
			}
			if more = most > 0 && len(asked) == most; more {
				break
			}
			asked = append(asked, askedJob{listed: jobs[i]})
		}
	}
	parallel.Each(len(asked), rest.FanOut, func(i int) {
		// One that does not answer was deleted, or a later overview shows it.
		asked[i].says, _ = h.Store.Jobs().Get(ctx, asked[i].listed.Name)
	})
	return asked, more, nil
}

// askedServices are the services and system jobs as overviews show them. Overviews share a reading for as long that
// reading takes a small part of the time.
type askedServices struct {
	mu    sync.Mutex
	until time.Time
	asked []askedJob
	more  bool
}

// askedShare is how many times as long as it took a reading of services is shown.
const askedShare = 20

func (s *askedServices) read(ctx context.Context, h *Handlers) (asked []askedJob, more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began := time.Now(); !began.Before(s.until) {
		if s.asked, s.more, err = h.askJobs(ctx, overviewJobs, isTold); err != nil {
			return nil, false, err
		}
		s.until = time.Now().Add(askedShare * time.Since(began))
	}
	return s.asked, s.more, nil
}

// readServices lists the jobs, and asks those that keep a count or deploy a version how they stand.
func (h *Handlers) readServices(ctx context.Context, clusters []clusterReading, now time.Time) error {
	of := map[string]*serviceReading{}
	for i := range clusters {
		clusters[i].services.deployments = map[api.DeploymentStatus]int{}
		of[clusters[i].Config.Name] = &clusters[i].services
	}
	asked, _, err := h.askJobs(ctx, 0, func(e *api.JobEntry) bool {
		if of[e.Cluster] == nil {
			return false
		}
		of[e.Cluster].deployments[e.Deployment]++
		return e.Type == api.JobService || e.Deployment == api.DeploymentRunning
	})
	for i := range asked {
		r := of[asked[i].listed.Cluster]
		if asked[i].says.Overdue(now) {
			r.overdue++
		}
		if asked[i].says.Short() {
			r.short++
		}
	}
	return err
}

// jobs reports services and system jobs whose instances or deployments are not as they should be, and jobs whose
// schedules cannot be written.
func (b *overviewBuilder) jobs(asked []askedJob, more bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.missing("how services stand")
		return
	}
	troubled := map[string][]diagnosis.JobFacts{}
	for i := range asked {
		e, j := &asked[i].listed, &asked[i].says
		facts := diagnosis.JobFacts{Job: e.Name, Unscheduled: e.Unscheduled}
		if t := j.Trouble(b.At); t != nil {
			facts.Healthy, facts.Wanted, facts.Lacks, facts.Since = t.Healthy, t.Wanted, t.Why, t.Since
			b.Jobs.Troubled++
			if t.Failed != nil {
				facts.Failed, facts.RevertedTo = t.Failed.Version, t.Failed.RevertedTo
				facts.FailedWhy, facts.DeployedAt = t.Failed.Reason, t.Failed.EndedAt
				b.Jobs.FailedDeployments++
			}
			if t.Why != "" {
				b.Jobs.Lacking++
			}
		}
		if r := j.Deployment(); r != nil && r.Status == api.DeploymentWaiting {
			facts.Waits, facts.DeployedAt = r.Version, r.StartedAt
			b.Jobs.WaitingDeployments++
		}
		troubled[e.Cluster] = append(troubled[e.Cluster], facts)
	}
	for cluster, facts := range troubled {
		problems := diagnosis.OfJobs(cluster, facts)
		for i := range problems {
			if more {
				problems[i].Why = api.Reasons(problems[i].Why, "only the newest services were asked")
			}
		}
		b.Problems = append(b.Problems, problems...)
	}
}

// isTold reports whether an overview may show a job of a list: one whose instances should run all the time, or one
// whose schedules cannot be written.
func isTold(e *api.JobEntry) bool {
	return e.Type == api.JobService || e.Type == api.JobSystem || e.Unscheduled != ""
}
