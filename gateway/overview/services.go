package overview

import (
	"context"
	"time"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/job"
	"mainstay.dev/mainstay/parallel"
)

// servicePage is how many jobs are listed at a time.
const servicePage = 500

// toldDeployments are the statuses of deployments that somebody may have to do something about.
var toldDeployments = []job.DeploymentStatus{job.DeploymentRunning, job.DeploymentWaiting, job.DeploymentFailed}

// serviceReading is how the jobs with instances of a cluster stand.
type serviceReading struct {
	deployments map[job.DeploymentStatus]int // of the versions in force
	overdue     int                          // deployments that should have ended
	short       int                          // services with fewer instances that pass than asked for
}

// readServices lists the jobs, and asks those that keep a count or deploy a version how they stand.
func (h *Handlers) readServices(ctx context.Context, clusters []clusterReading, now time.Time) error {
	of := map[string]*serviceReading{}
	for i := range clusters {
		clusters[i].services.deployments = map[job.DeploymentStatus]int{}
		of[clusters[i].Config.Name] = &clusters[i].services
	}
	query := rest.AllOf(contract.Equals("WorkflowType", contract.JobWorkflow),
		contract.Equals("ExecutionStatus", "Running"))
	var ask []api.JobEntry
	for token, more := []byte(nil), true; more; more = len(token) > 0 {
		jobs, next, err := h.Store.Jobs().Page(ctx, query, servicePage, token)
		if err != nil {
			return err
		}
		token = next
		for i := range jobs {
			j := &jobs[i]
			if of[j.Cluster] == nil || j.Stopped {
				continue
			}
			of[j.Cluster].deployments[j.Deployment]++
			if j.Type == job.Service || j.Deployment == job.DeploymentRunning {
				ask = append(ask, *j)
			}
		}
	}
	found, errs := make([]job.Job, len(ask)), make([]error, len(ask))
	parallel.Each(len(ask), rest.FanOut, func(i int) { found[i], errs[i] = h.Store.Jobs().Get(ctx, ask[i].Name) })
	for i := range found {
		if errs[i] != nil {
			continue // it was deleted, or is told of when it answers
		}
		r := of[ask[i].Cluster]
		if found[i].Overdue(now) {
			r.overdue++
		}
		if found[i].Short() {
			r.short++
		}
	}
	return nil
}
