package client

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"mainstay.dev/sdk/api"
)

const (
	// maxHold is the longest wait that the API takes in one request.
	maxHold = 60 * time.Second
	// batchHold is how long the server may work on a batch.
	batchHold = 90 * time.Second
)

// TaskPart is a part of a task that is answered only when it is asked for.
type TaskPart string

// WithPayload asks for what was submitted, WithHistory for what happened to the task.
const (
	WithPayload TaskPart = "payload"
	WithHistory TaskPart = "history"
)

// Submit submits a task, once: a task without an id and idempotency key gets an id here, so that the request can be
// repeated when its answer is lost.
func (t Tasks) Submit(ctx context.Context, task *api.TaskRequest) (*api.Task, error) {
	own := named(task)
	answer, err := do[api.Task](ctx, t.c, request{method: http.MethodPost, path: path("tasks"), body: own, keyed: true})
	if err == nil && own != task {
		answer.Duplicate = false // of an earlier try
	}
	return answer, err
}

// named is the task itself, or with an id if it has neither that nor an idempotency key.
func named(task *api.TaskRequest) *api.TaskRequest {
	if task.ID != "" || task.IdempotencyKey != "" {
		return task
	}
	own := *task
	own.ID = api.NewTaskID()
	return &own
}

// SubmitAll submits up to 1,000 tasks; T is api.TaskRequest, which is submitted once as by Submit, or its JSON. Each is
// accepted or refused by itself.
func SubmitAll[T any](ctx context.Context, c *Client, tasks []T) ([]api.BatchItem, error) {
	own, keyed := slices.Clone(tasks), true
	for i := range own {
		task, ok := any(&own[i]).(*api.TaskRequest)
		if keyed = ok; !ok {
			break
		}
		*task = *named(task)
	}
	answer, err := do[api.Batch](ctx, c, request{
		method: http.MethodPost,
		path:   path("tasks", "batch"),
		body:   own,
		hold:   batchHold,
		keyed:  keyed,
	})
	if err != nil {
		return nil, err
	}
	for i := range answer.Tasks {
		if task, ok := any(&tasks[i]).(*api.TaskRequest); ok && named(task) != task {
			answer.Tasks[i].Duplicate = false
		}
	}
	return answer.Tasks, nil
}

// Get returns a task as it stands.
func (t Tasks) Get(ctx context.Context, id string, with ...TaskPart) (*api.Task, error) {
	return t.Wait(ctx, id, 0, with...)
}

// Wait returns a task as soon as it has ended or needs a person, or as it stands when wait is over.
func (t Tasks) Wait(ctx context.Context, id string, wait time.Duration, with ...TaskPart) (*api.Task, error) {
	deadline := time.Now().Add(wait)
	for {
		hold := min(max(0, time.Until(deadline)), maxHold)
		query := values("wait", hold)
		for _, part := range with {
			query.Add("include", string(part))
		}
		task, err := get[api.Task](ctx, t.c, path("tasks", id), query)
		if err != nil || task.Status.Settled() || hold == 0 || !time.Now().Before(deadline) {
			return task, err
		}
	}
}

// TaskQuery selects tasks; all that is set must hold.
type TaskQuery struct {
	Cluster, Type, Tenant string
	Status                api.TaskStatus
	Agent                 string   // the one that had them, or that they are pinned to
	IDPrefix              string   // how their ids begin
	Text                  string   // a part of their id, type, labels or agents
	Labels                []string // each as name=value
	Recovery              string   // blocked: no agent can run them
	SubmittedAfter        time.Time
	SubmittedBefore       time.Time
}

// List lists tasks, newest first.
func (t Tasks) List(q TaskQuery) *List[api.Task] {
	return list[api.Task](t.c, path("tasks"), "tasks", values(
		"cluster", q.Cluster, "status", q.Status, "type", q.Type, "tenant", q.Tenant, "agent", q.Agent, "label",
		q.Labels, "id_prefix", q.IDPrefix, "text", q.Text, "recovery", q.Recovery,
		"submitted_after", q.SubmittedAfter, "submitted_before", q.SubmittedBefore))
}

// Waiting lists the tasks that wait for an agent or for the end of a backoff. Empty arguments select all.
func (t Tasks) Waiting(cluster, tenant string) *List[api.Task] {
	return list[api.Task](t.c, path("tasks", "queue"), "tasks", values("cluster", cluster, "tenant", tenant))
}

// DeadLetterQuery selects dead letters; all that is set must hold.
type DeadLetterQuery struct{ Cluster, Tenant, Type, Cause string }

func (q DeadLetterQuery) values() url.Values {
	return values("cluster", q.Cluster, "tenant", q.Tenant, "type", q.Type, "cause", q.Cause)
}

// DeadLetters lists the tasks whose attempts are used up.
func (t Tasks) DeadLetters(q DeadLetterQuery) *List[api.Task] {
	return list[api.Task](t.c, path("tasks", "queue", "dead-letter"), "tasks", q.values())
}

// CountDeadLetters counts dead letters by type and cause.
func (t Tasks) CountDeadLetters(ctx context.Context, q DeadLetterQuery) (*api.DeadLetters, error) {
	return get[api.DeadLetters](ctx, t.c, path("tasks", "queue", "dead-letter", "causes"), q.values())
}

// Cancel cancels a task.
func (t Tasks) Cancel(ctx context.Context, id, reason string) (*api.Task, error) {
	return post[api.Task](ctx, t.c, path("tasks", id, "cancel"), api.ReasonRequest{Reason: reason})
}

// Retry gives a dead letter a fresh set of attempts.
func (t Tasks) Retry(ctx context.Context, id, reason string) (*api.Task, error) {
	return post[api.Task](ctx, t.c, path("tasks", id, "retry"), api.ReasonRequest{Reason: reason})
}

// Rerun submits a task that repeats one which has ended, or is a dead letter, once: a request without an id and
// idempotency key gets an id here, so that it can be repeated when its answer is lost.
func (t Tasks) Rerun(ctx context.Context, id string, r api.RerunTaskRequest) (*api.Task, error) {
	if r.ID == "" && r.IdempotencyKey == "" {
		tenant, _ := api.CutTenant(id)
		r.ID = api.Qualify(tenant, api.NewTaskID())
	}
	return do[api.Task](ctx, t.c,
		request{method: http.MethodPost, path: path("tasks", id, "rerun"), body: r, keyed: true})
}

// Discard gives a dead letter up.
func (t Tasks) Discard(ctx context.Context, id, reason string) (*api.Task, error) {
	return post[api.Task](ctx, t.c, path("tasks", id, "discard"), api.DiscardTaskRequest{Reason: reason})
}

// Review decides about a task in review.
func (t Tasks) Review(ctx context.Context, id string, decision api.ReviewTaskRequest) (*api.Task, error) {
	return post[api.Task](ctx, t.c, path("tasks", id, "review"), decision)
}

// SetPriority changes the priority of a task that has not ended.
func (t Tasks) SetPriority(ctx context.Context, id string, r api.TaskPriorityRequest) (*api.Task, error) {
	return post[api.Task](ctx, t.c, path("tasks", id, "priority"), r)
}

// LogQuery selects lines of a task's log.
type LogQuery struct {
	After   int64         // only lines with a greater number
	Attempt int           // 0: the one that runs, or else the last
	Wait    time.Duration // for the first line, at most a minute
}

// Log reads what a running task writes.
func (t Tasks) Log(ctx context.Context, id string, q LogQuery) (*api.TaskLog, error) {
	return get[api.TaskLog](ctx, t.c, path("tasks", id, "log"),
		values("after", q.After, "attempt", q.Attempt, "wait", q.Wait))
}

// Start acts on many tasks, or says on how many with DryRun.
func (b Bulks) Start(ctx context.Context, r *api.BulkRequest) (*api.Bulk, error) {
	return post[api.Bulk](ctx, b.c, path("tasks", "bulk"), r)
}

// Get returns a bulk operation once it has ended, or as it stands when wait, at most a minute, is over.
func (b Bulks) Get(ctx context.Context, id string, wait time.Duration) (*api.Bulk, error) {
	return get[api.Bulk](ctx, b.c, path("tasks", "bulk", id), values("wait", wait))
}

// List lists bulk operations, newest first.
func (b Bulks) List() *List[api.Bulk] {
	return list[api.Bulk](b.c, path("tasks", "bulk"), "bulks", values())
}

// Cancel stops a bulk operation; what it has done stays done.
func (b Bulks) Cancel(ctx context.Context, id, reason string) (*api.Bulk, error) {
	return post[api.Bulk](ctx, b.c, path("tasks", "bulk", id, "cancel"), api.ReasonRequest{Reason: reason})
}
