package job

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/mainstay/internal/parallel"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

type restartInput struct {
	rest.ByName
	Instance string `path:"instance"`
	Body     *api.ReasonRequest
}

// instanceTakes is about what reading an instance's task takes, in bytes.
const instanceTakes = 256 << 10

// instances are a job's instances, with the states of their tasks.
func (h *Handlers) instances(ctx context.Context, in *rest.ByName) (api.JobInstances, error) {
	name, j, err := h.find(ctx, in.Name)
	if err != nil {
		return api.JobInstances{}, err
	}
	d := j.Definition()
	cluster, err := h.View(ctx, d.Cluster)
	if err != nil {
		return api.JobInstances{}, err
	}
	if err := httpapi.Reserve(ctx, int64(min(len(j.Instances), rest.FanOut))*instanceTakes); err != nil {
		return api.JobInstances{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	// Temporal has later what hubs do not answer now.
	found, _ := h.Core.Instances(ctx, &cluster.Cluster, name)
	now, running := time.Now(), map[string]*contract.FoundInstance{}
	for n := range found {
		running[found[n].TaskID] = &found[n]
	}
	list, tasks := make([]api.JobInstance, len(j.Instances)), make([]store.Task, len(j.Instances))
	parallel.Each(len(list), rest.FanOut, func(n int) {
		i := &list[n]
		i.Instance = j.Instances[n]
		task, err := h.Store.Tasks().Describe(ctx, i.TaskID)
		if err == nil {
			_ = h.Store.Tasks().Complete(ctx, &task) // an unknown task is left as it is
		}
		i.Status = job.StatusOf(&i.Instance, task.Status)
		for a := range task.Attempts {
			if attempt := &task.Attempts[a]; attempt.AgentID != "" && attempt.Outcome != api.AttemptReturned {
				i.Agent = attempt.AgentID
				i.Attempts++
			}
		}
		if at := running[i.TaskID]; at != nil && i.Open() {
			i.Status, i.Agent, i.Health = api.StepRunning, at.Agent, at.Checked
			task.Status, task.Why, task.NextAttemptAt = api.TaskRunning, "", nil
		}
		if i.Open() {
			task.ShowRecovery(now)
			i.RecoveryStatus, i.PolicyState = task.RecoveryStatus, task.PolicyState
			i.RecoveryRequiresReview = task.RecoveryRequiresReview
			if task.NextAttemptAt != nil {
				i.NextAt = *task.NextAttemptAt
			}
		}
		tasks[n] = task
		if m := cluster.Member(i.Agent); m != nil {
			i.Address = m.Address
		}
	})
	h.Explain(ctx, tasks)
	for n := range list {
		list[n].Why = cmp.Or(list[n].Why, tasks[n].Why)
	}
	slices.SortStableFunc(list, func(a, b api.JobInstance) int { // numbers by their value
		return cmp.Or(len(a.Name)-len(b.Name), strings.Compare(a.Name, b.Name))
	})
	out := api.JobInstances{Wanted: j.Count, Instances: list, Deployment: j.Deployment(), Why: j.Waiting()}
	if d.OnEachAgent() {
		out.Wanted = len(list)
	}
	if j.Stopped != nil {
		out.Wanted = 0
	}
	return out, nil
}

// restart stops the task of an instance. Its job then starts another.
func (h *Handlers) restart(ctx context.Context, in *restartInput) (done rest.None, err error) {
	_, j, err := h.find(ctx, in.Name)
	if err != nil {
		return done, err
	}
	i := j.FindInstance(in.Instance)
	switch {
	case i == nil:
		return done, httpapi.Problem(protocol.CodeUnknownJob, "the job has no such instance: see its instances")
	case j.Definition().Type == api.JobSysbatch:
		return done, httpapi.Problem(protocol.CodeConflict,
			"each agent runs its instance of a sysbatch job once: apply a definition that differs to run all again")
	case !i.Open():
		return done, httpapi.Problem(protocol.CodeConflict, "the instance has ended: nothing runs that could be restarted")
	}
	_, err = store.Update(ctx, h.Store, contract.CancelUpdate, contract.TaskWorkflowID(i.TaskID),
		contract.CancelRequest{ForTask: contract.ForTask{By: rest.Actor(ctx)},
			Reason: cmp.Or(in.Body.Text(), "restarted by request")})
	return done, h.Answer(err, "restart an instance", protocol.CodeUnknownTask)
}
