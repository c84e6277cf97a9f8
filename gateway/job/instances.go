package job

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/job"
	"mainstay.dev/mainstay/parallel"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

type scaleInput struct {
	NameInput
	Body api.ScaleJobRequest
}

type restartInput struct {
	NameInput
	Instance string             `path:"instance" doc:"The instance's number, or its agent."`
	Body     *api.ReasonRequest `doc:"May be left out."`
}

func (h *Handlers) registerInstances(routes huma.API) {
	httpapi.Register(routes, access.View.Scoped(), httpapi.Wide(op("list-job-instances", "GET /jobs/{name}/instances",
		"List the instances of a job", "Of a service, system or sysbatch job.")),
		func(ctx context.Context, in *NameInput) (*rest.Output[api.JobInstances], error) {
			return rest.Reply(h.instances(ctx, in.Name))
		})
	httpapi.Register(routes, access.Operate.Scoped(), op("stop-job", "POST /jobs/{name}/stop",
		"Stop the instances of a job", "They start again when the job is resumed."),
		func(ctx context.Context, in *reasonInput) (*jobOutput, error) {
			return h.change(ctx, in, contract.StopJobUpdate)
		})
	httpapi.Register(routes, access.Operate.Scoped(), op("promote-job", "POST /jobs/{name}/promote",
		"Let all instances follow the healthy canaries", "Only while the deployment of the job is waiting."),
		func(ctx context.Context, in *reasonInput) (*jobOutput, error) {
			return h.change(ctx, in, contract.PromoteJobUpdate)
		})
	httpapi.Register(routes, access.Operate.Scoped(), op("fail-job-deployment", "POST /jobs/{name}/fail",
		"End the deployment of a job as failed", "Old instances stay; with revert, the version before is put in force again."),
		func(ctx context.Context, in *reasonInput) (*jobOutput, error) {
			return h.change(ctx, in, contract.FailDeploymentUpdate)
		})
	httpapi.Register(routes, access.Operate.Scoped(), op("scale-job", "POST /jobs/{name}/scale",
		"Say how many instances a service has", "The definition keeps its count; one with another count changes it again."),
		h.scale)
	httpapi.Register(routes, access.Operate.Scoped(), rest.WithStatus(http.StatusNoContent, op("restart-job-instance",
		"POST /jobs/{name}/instances/{instance}/restart", "Restart an instance",
		"Its task is stopped; another takes its place at once. The other instances go on.")), h.restart)
}

// instanceTakes is about what reading an instance's task takes, in bytes.
const instanceTakes = 256 << 10

// instances are those of a job, with what their tasks tell.
func (h *Handlers) instances(ctx context.Context, name string) (api.JobInstances, error) {
	name, j, err := h.find(ctx, name)
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
	// What hubs do not tell, Temporal tells later.
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
			_ = h.Store.Tasks().Complete(ctx, &task) // what is not known is left out
		}
		i.Status = i.StatusOf(task.Status)
		for a := range task.Attempts {
			if attempt := &task.Attempts[a]; attempt.AgentID != "" && attempt.Outcome != fleet.AttemptReturned {
				i.Agent = attempt.AgentID
				i.Attempts++
			}
		}
		if at := running[i.TaskID]; at != nil && i.Open() {
			i.Status, i.Agent, i.Health = job.StepRunning, at.Agent, at.Checked
			task.Status, task.Why, task.NextAttemptAt = fleet.TaskRunning, "", nil
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

func (h *Handlers) scale(ctx context.Context, in *scaleInput) (*jobOutput, error) {
	return change(ctx, h, in.Name, contract.ScaleJobUpdate, contract.ScaleJob{Count: in.Body.Count,
		RunRequest: contract.RunRequest{By: rest.Actor(ctx)}})
}

// restart stops the task of an instance. Its job then starts another.
func (h *Handlers) restart(ctx context.Context, in *restartInput) (*struct{}, error) {
	_, j, err := h.find(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	i := j.FindInstance(in.Instance)
	switch {
	case i == nil:
		return nil, httpapi.Problem(protocol.CodeUnknownJob, "the job has no such instance: see its instances")
	case j.Definition().Type == job.Sysbatch:
		return nil, httpapi.Problem(protocol.CodeConflict,
			"each agent runs its instance of a sysbatch job once: apply a definition that differs to run all again")
	case !i.Open():
		return nil, httpapi.Problem(protocol.CodeConflict, "the instance has ended: nothing runs that could be restarted")
	}
	reason := in.Body.Text()
	reason = cmp.Or(reason, "restarted by request")
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	_, err = store.Update(ctx, h.Store, contract.CancelUpdate, contract.TaskWorkflowID(i.TaskID),
		contract.CancelRequest{ForTask: contract.ForTask{By: rest.Actor(ctx)}, Reason: reason})
	return nil, h.Answer(err, "restart an instance", protocol.CodeUnknownTask)
}
