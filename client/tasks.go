package client

import (
	"context"
	"net/http"
	"time"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
)

const (
	// maxHold is the longest wait that the API takes in one request.
	maxHold = 60 * time.Second
	// batchHold is how long the server may work on a batch.
	batchHold = 90 * time.Second
)

// TaskPart is a part of a task that is answered only when it is asked for.
type TaskPart string

// WithPayload asks for what was submitted.
const WithPayload TaskPart = "payload"

// Submit submits a task. With an id or idempotency key it may be repeated: the answer is then the one task.
func (c *Client) Submit(ctx context.Context, task *api.TaskRequest) (*api.Task, error) {
	return do[api.Task](ctx, c, request{
		method: http.MethodPost,
		path:   path("tasks"),
		body:   task,
		keyed:  task.ID != "" || task.IdempotencyKey != "",
	})
}

// SubmitAll submits up to 1,000 tasks; T is api.TaskRequest or its JSON. Each is accepted or refused by itself.
func SubmitAll[T any](ctx context.Context, c *Client, tasks []T) ([]api.BatchItem, error) {
	answer, err := do[struct{ Tasks []api.BatchItem }](ctx, c, request{
		method: http.MethodPost,
		path:   path("tasks", "batch"),
		body:   tasks,
		hold:   batchHold,
		keyed:  allKeyed(tasks),
	})
	if err != nil {
		return nil, err
	}
	return answer.Tasks, nil
}

// allKeyed reports whether each task has an id or idempotency key.
func allKeyed[T any](tasks []T) bool {
	for i := range tasks {
		task, ok := any(&tasks[i]).(*api.TaskRequest)
		if !ok || task.ID == "" && task.IdempotencyKey == "" {
			return false
		}
	}
	return true
}

// Task returns a task as it stands.
func (c *Client) Task(ctx context.Context, id string, with ...TaskPart) (*api.Task, error) {
	return c.WaitForTask(ctx, id, 0, with...)
}

// WaitForTask returns a task as soon as it has ended or needs a person, or as it stands when wait is over.
func (c *Client) WaitForTask(ctx context.Context, id string, wait time.Duration, with ...TaskPart) (*api.Task, error) {
	deadline := time.Now().Add(wait)
	for {
		hold := min(max(0, time.Until(deadline)), maxHold)
		query := values("wait", hold)
		for _, part := range with {
			query.Add("include", string(part))
		}
		task, err := get[api.Task](ctx, c, path("tasks", id), query)
		if err != nil || task.Status.Settled() || hold == 0 || !time.Now().Before(deadline) {
			return task, err
		}
	}
}

// TaskQuery selects tasks; all that is set must hold.
type TaskQuery struct {
	Cluster, Type, Tenant string
	Status                fleet.TaskStatus
	Agent                 string   // the one they are pinned to
	Labels                []string // each as name=value
	SubmittedAfter        time.Time
	SubmittedBefore       time.Time
}

// Tasks lists tasks, newest first.
func (c *Client) Tasks(q TaskQuery) *List[api.Task] {
	return list[api.Task](c, path("tasks"), "tasks", values(
		"cluster", q.Cluster, "status", q.Status, "type", q.Type, "tenant", q.Tenant, "agent", q.Agent, "label",
		q.Labels,
		"submitted_after", q.SubmittedAfter, "submitted_before", q.SubmittedBefore))
}

// WaitingTasks lists the tasks that wait for an agent or for the end of a backoff. Empty arguments select all.
func (c *Client) WaitingTasks(cluster, tenant string) *List[api.Task] {
	return list[api.Task](c, path("tasks", "queue"), "tasks", values("cluster", cluster, "tenant", tenant))
}

// DeadLetters lists the tasks whose attempts are used up. Empty arguments select all.
func (c *Client) DeadLetters(cluster, tenant string) *List[api.Task] {
	return list[api.Task](c, path("tasks", "queue", "dead-letter"), "tasks",
		values("cluster", cluster, "tenant", tenant))
}

// CancelTask cancels a task.
func (c *Client) CancelTask(ctx context.Context, id, reason string) (*api.Task, error) {
	return post[api.Task](ctx, c, path("tasks", id, "cancel"), api.ReasonRequest{Reason: reason})
}

// RetryTask gives a dead letter a fresh set of attempts.
func (c *Client) RetryTask(ctx context.Context, id, reason string) (*api.Task, error) {
	return post[api.Task](ctx, c, path("tasks", id, "retry"), api.ReasonRequest{Reason: reason})
}

// DiscardTask gives a dead letter up.
func (c *Client) DiscardTask(ctx context.Context, id, reason string) (*api.Task, error) {
	return post[api.Task](ctx, c, path("tasks", id, "discard"), api.DiscardTaskRequest{Reason: reason})
}

// ReviewTask decides about a task in review.
func (c *Client) ReviewTask(ctx context.Context, id string, decision api.ReviewTaskRequest) (*api.Task, error) {
	return post[api.Task](ctx, c, path("tasks", id, "review"), decision)
}

// SetTaskPriority changes the priority of a task that has not ended.
func (c *Client) SetTaskPriority(ctx context.Context, id string, r api.TaskPriorityRequest) (*api.Task, error) {
	return post[api.Task](ctx, c, path("tasks", id, "priority"), r)
}

// LogQuery selects lines of a task's log.
type LogQuery struct {
	After   int64         // only lines with a greater number
	Attempt int           // 0: the one that runs, or else the last
	Wait    time.Duration // for the first line, at most a minute
}

// TaskLog reads what a running task writes.
func (c *Client) TaskLog(ctx context.Context, id string, q LogQuery) (*api.TaskLog, error) {
	return get[api.TaskLog](ctx, c, path("tasks", id, "log"),
		values("after", q.After, "attempt", q.Attempt, "wait", q.Wait))
}

// BulkTasks acts on many tasks, or says on how many with DryRun.
func (c *Client) BulkTasks(ctx context.Context, r *api.BulkRequest) (*api.Bulk, error) {
	return post[api.Bulk](ctx, c, path("tasks", "bulk"), r)
}

// Bulk returns a bulk operation once it has ended, or as it stands when wait, at most a minute, is over.
func (c *Client) Bulk(ctx context.Context, id string, wait time.Duration) (*api.Bulk, error) {
	return get[api.Bulk](ctx, c, path("tasks", "bulk", id), values("wait", wait))
}

// Bulks lists bulk operations, newest first.
func (c *Client) Bulks() *List[api.Bulk] {
	return list[api.Bulk](c, path("tasks", "bulk"), "bulks", values())
}

// CancelBulk stops a bulk operation; what it has done stays done.
func (c *Client) CancelBulk(ctx context.Context, id, reason string) (*api.Bulk, error) {
	return post[api.Bulk](ctx, c, path("tasks", "bulk", id, "cancel"), api.ReasonRequest{Reason: reason})
}
