package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"time"

	"mainstay.dev/sdk/api"
)

// ArrayQuery selects arrays; all that is set must hold.
type ArrayQuery struct {
	Cluster, Type, Tenant string
	Status                api.ArrayStatus
}

// Submit submits an array, once: one without an id and idempotency key gets an id here, so that the request can be
// repeated when its answer is lost.
func (a Arrays) Submit(ctx context.Context, r *api.ArrayRequest) (*api.Array, error) {
	own := *r
	if own.ID == "" && own.IdempotencyKey == "" {
		own.ID = api.NewArrayID()
	}
	submit := request{method: http.MethodPost, path: path("arrays"), body: own, keyed: true}
	answer, err := do[api.Array](ctx, a.c, submit)
	if err == nil && r.ID == "" && r.IdempotencyKey == "" {
		answer.Duplicate = false // of an earlier try
	}
	return answer, err
}

// List lists arrays, newest first.
func (a Arrays) List(q ArrayQuery) *List[api.ArrayEntry] {
	return list[api.ArrayEntry](a.c, path("arrays"), "arrays",
		values("cluster", q.Cluster, "type", q.Type, "tenant", q.Tenant, "status", q.Status))
}

// Get returns an array as soon as it has ended or waits for a person, or as it stands when wait is over, at most a
// minute.
func (a Arrays) Get(ctx context.Context, id string, wait time.Duration) (*api.Array, error) {
	return get[api.Array](ctx, a.c, path("arrays", id), values("wait", min(wait, maxHold)))
}

// Elements lists an array's elements, with a status or all.
func (a Arrays) Elements(id string, status api.ElementStatus) *List[api.ElementEntry] {
	return list[api.ElementEntry](a.c, path("arrays", id, "elements"), "elements", values("status", status))
}

// Results are what the elements of an array returned, as far as they have completed, in the order in which they did. An
// error ends them.
func (a Arrays) Results(ctx context.Context, id string) iter.Seq2[api.ArrayResult, error] {
	return func(yield func(api.ArrayResult, error) bool) {
		results := request{method: http.MethodGet, path: path("arrays", id, "results.ndjson")}
		response, err := a.c.open(ctx, &results, nil)
		if err != nil {
			yield(api.ArrayResult{}, err)
			return
		}
		defer func() { _ = response.Body.Close() }()
		lines := json.NewDecoder(bufio.NewReader(response.Body))
		for {
			var line struct {
				api.ArrayResult
				Error string `json:"error"`
			}
			err := lines.Decode(&line)
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && line.Error != "" {
				err = errors.New(line.Error)
			}
			if !yield(line.ArrayResult, err) || err != nil {
				return
			}
		}
	}
}

// Pause pauses an array: nothing new begins.
func (a Arrays) Pause(ctx context.Context, id, reason string) (*api.Array, error) {
	return post[api.Array](ctx, a.c, path("arrays", id, "pause"), api.ReasonRequest{Reason: reason})
}

// Resume resumes an array.
func (a Arrays) Resume(ctx context.Context, id, reason string) (*api.Array, error) {
	return post[api.Array](ctx, a.c, path("arrays", id, "resume"), api.ReasonRequest{Reason: reason})
}

// Cancel cancels an array.
func (a Arrays) Cancel(ctx context.Context, id, reason string) (*api.Array, error) {
	return post[api.Array](ctx, a.c, path("arrays", id, "cancel"), api.ReasonRequest{Reason: reason})
}

// Retry runs elements of an array again: those that are named, or all dead letters.
func (a Arrays) Retry(ctx context.Context, id string, in api.RetryArrayRequest) (*api.Array, error) {
	return post[api.Array](ctx, a.c, path("arrays", id, "retry"), in)
}

// SetPriority changes the priority of an array's further deliveries.
func (a Arrays) SetPriority(ctx context.Context, id string, in api.TaskPriorityRequest) (*api.Array, error) {
	return post[api.Array](ctx, a.c, path("arrays", id, "priority"), in)
}
