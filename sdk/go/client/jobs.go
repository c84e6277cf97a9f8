package client

import (
	"context"
	"net/http"
	"time"

	"mainstay.dev/sdk/api"
)

// JobQuery selects jobs; all that is set must hold.
type JobQuery struct {
	Cluster, Tenant string
	Troubled        bool // only those that lack healthy instances, or whose deployment has failed
}

// List lists jobs.
func (j Jobs) List(q JobQuery) *List[api.JobEntry] {
	return list[api.JobEntry](j.c, path("jobs"), "jobs", values("cluster", q.Cluster, "tenant", q.Tenant,
		"troubled", q.Troubled))
}

// Get returns a job with its definition: that in force, or of another version.
func (j Jobs) Get(ctx context.Context, name string, version int) (*api.Job, error) {
	return get[api.Job](ctx, j.c, path("jobs", name), values("version", version))
}

// Apply gives a job a definition, in YAML or JSON. With a version, only while that is in force.
func (j Jobs) Apply(ctx context.Context, name string, definition []byte, version string) (*api.Job, error) {
	return do[api.Job](ctx, j.c, request{method: http.MethodPut, path: path("jobs", name), text: definition,
		header: ifMatch(version)})
}

// Plan says what a definition would change.
func (j Jobs) Plan(ctx context.Context, name string, definition []byte) (*api.JobPlan, error) {
	return do[api.JobPlan](
		ctx,
		j.c,
		request{method: http.MethodPost, path: path("jobs", name, "plan"), text: definition,
			keyed: true},
	)
}

// Versions returns the versions of a job's definition that are kept, the one in force last.
func (j Jobs) Versions(ctx context.Context, name string) ([]api.JobVersion, error) {
	answer, err := get[struct{ Versions []api.JobVersion }](ctx, j.c, path("jobs", name, "versions"), nil)
	if err != nil {
		return nil, err
	}
	return answer.Versions, nil
}

// Dispatch starts a run. With an idempotency key it may be repeated: the answer is then the one run.
func (j Jobs) Dispatch(ctx context.Context, name string, r api.DispatchRequest) (*api.Run, error) {
	return do[api.Run](ctx, j.c, request{method: http.MethodPost, path: path("jobs", name, "dispatch"), body: r,
		keyed: r.IdempotencyKey != ""})
}

// Pause stops a job from starting runs.
func (j Jobs) Pause(ctx context.Context, name, reason string) (*api.Job, error) {
	return post[api.Job](ctx, j.c, path("jobs", name, "pause"), api.ReasonRequest{Reason: reason})
}

// Resume lets a job start runs again.
func (j Jobs) Resume(ctx context.Context, name, reason string) (*api.Job, error) {
	return post[api.Job](ctx, j.c, path("jobs", name, "resume"), api.ReasonRequest{Reason: reason})
}

// Instances lists the instances of a job.
func (j Jobs) Instances(ctx context.Context, name string) (*api.JobInstances, error) {
	return get[api.JobInstances](ctx, j.c, path("jobs", name, "instances"), nil)
}

// Stop stops the instances of a job.
func (j Jobs) Stop(ctx context.Context, name, reason string) (*api.Job, error) {
	return post[api.Job](ctx, j.c, path("jobs", name, "stop"), api.ReasonRequest{Reason: reason})
}

// Scale says how many instances a service has.
func (j Jobs) Scale(ctx context.Context, name string, count int) (*api.Job, error) {
	return post[api.Job](ctx, j.c, path("jobs", name, "scale"), api.ScaleJobRequest{Count: count})
}

// Restart restarts an instance, named by its number or its agent.
func (j Jobs) Restart(ctx context.Context, name, instance, reason string) error {
	_, err := post[none](ctx, j.c, path("jobs", name, "instances", instance, "restart"),
		api.ReasonRequest{Reason: reason})
	return err
}

// Promote lets all instances follow the healthy canaries of a deployment.
func (j Jobs) Promote(ctx context.Context, name, reason string) (*api.Job, error) {
	return post[api.Job](ctx, j.c, path("jobs", name, "promote"), api.ReasonRequest{Reason: reason})
}

// FailDeployment ends the deployment of a job as failed.
func (j Jobs) FailDeployment(ctx context.Context, name, reason string) (*api.Job, error) {
	return post[api.Job](ctx, j.c, path("jobs", name, "fail"), api.ReasonRequest{Reason: reason})
}

// Revert puts an earlier version in force again; 0: the last with which all instances were healthy.
func (j Jobs) Revert(ctx context.Context, name string, version int) (*api.Job, error) {
	return post[api.Job](ctx, j.c, path("jobs", name, "revert"), api.RevertRequest{Version: version})
}

// Delete deletes a job; its runs go on.
func (j Jobs) Delete(ctx context.Context, name string) error {
	_, err := do[none](ctx, j.c, request{method: http.MethodDelete, path: path("jobs", name), removes: true})
	return err
}

// RunQuery selects runs; all that is set must hold.
type RunQuery struct {
	Job, Cluster, Tenant string
	Status               api.RunStatus
}

// List lists runs, newest first.
func (r Runs) List(q RunQuery) *List[api.RunEntry] {
	return list[api.RunEntry](r.c, path("runs"), "runs",
		values("job", q.Job, "cluster", q.Cluster, "tenant", q.Tenant, "status", q.Status))
}

// Get returns a run as soon as it has ended or needs a person, or as it stands when wait is over, at most a minute.
func (r Runs) Get(ctx context.Context, id string, wait time.Duration) (*api.Run, error) {
	return get[api.Run](ctx, r.c, path("runs", id), values("wait", min(wait, maxHold)))
}

// Pause pauses a run.
func (r Runs) Pause(ctx context.Context, id string, in api.PauseRunRequest) (*api.Run, error) {
	return post[api.Run](ctx, r.c, path("runs", id, "pause"), in)
}

// Resume resumes a run.
func (r Runs) Resume(ctx context.Context, id, reason string) (*api.Run, error) {
	return post[api.Run](ctx, r.c, path("runs", id, "resume"), api.ReasonRequest{Reason: reason})
}

// Cancel cancels a run.
func (r Runs) Cancel(ctx context.Context, id, reason string) (*api.Run, error) {
	return post[api.Run](ctx, r.c, path("runs", id, "cancel"), api.ReasonRequest{Reason: reason})
}

// Retry starts a run that repeats what has not succeeded of one that has ended.
func (r Runs) Retry(ctx context.Context, id string, in api.RetryRunRequest) (*api.Run, error) {
	return post[api.Run](ctx, r.c, path("runs", id, "retry"), in)
}

// Step decides about a step of a run.
func (r Runs) Step(ctx context.Context, id, step string, action api.StepAction, in api.StepRequest) (*api.Run, error) {
	return post[api.Run](ctx, r.c, path("runs", id, "steps", step, string(action)), in)
}
