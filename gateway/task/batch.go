package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

const (
	maxBatchBody    = 32 << 20
	batchReadLimit  = time.Minute
	taskSchemaTitle = "TaskRequest"
)

// batchItem is one task of a batch, unread: each is validated by itself, so that one mistake costs one task.
type batchItem struct{ raw json.RawMessage }

// UnmarshalJSON keeps the text.
func (b *batchItem) UnmarshalJSON(data []byte) error {
	b.raw = append(b.raw[:0], data...)
	return nil
}

// Schema accepts anything here and names the schema that each item is then held to.
func (batchItem) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "A task as in POST /api/v1/agents/tasks (" + taskSchemaTitle + "); each is checked by itself.",
		Extensions:  map[string]any{"x-mainstay-max-bytes": httpapi.PayloadMaxBody},
	}
}

type batchInput struct {
	IdempotencyKey string      `header:"Idempotency-Key" maxLength:"258" doc:"Refused here: give each task its own idempotency_key."`
	Body           []batchItem `minItems:"1" maxItems:"1000"`
}

func (h *Handlers) registerBatch(r *rest.Routes, schemas huma.Registry) {
	schema := &itemSchema{registry: schemas}
	schema.task = schema.registry.Schema(reflect.TypeFor[api.TaskRequest](), true, taskSchemaTitle)
	rest.Serve(r, "submit-tasks", "POST /tasks/batch", "Submit up to 1,000 tasks",
		"Each task is accepted or rejected by itself; only one larger than 2 MiB has the whole batch refused. When "+
			"Temporal cannot be reached and nothing was accepted, the answer is 503.",
		func(ctx context.Context, in *batchInput) (out api.Batch, err error) {
			if in.IdempotencyKey != "" {
				return out, rest.Invalid("header.Idempotency-Key",
					errors.New("one key cannot name many tasks: give each its own idempotency_key in the body"))
			}
			for i := range in.Body {
				if len(in.Body[i].raw) > httpapi.PayloadMaxBody {
					return out, httpapi.InvalidField(fmt.Sprintf("body[%d]", i),
						fmt.Sprintf("expected at most %d bytes", httpapi.PayloadMaxBody))
				}
			}
			limited, cancel := context.WithTimeout(ctx, rest.BatchLimit)
			defer cancel()
			done, err := h.BatchTurn(limited)
			if err != nil {
				return out, err
			}
			defer done()
			out.Tasks = h.submitBatch(limited, schema, in.Body)
			unavailable := 0
			for i := range out.Tasks {
				switch problem := out.Tasks[i].Error; {
				case problem == nil:
					out.Accepted++
				default:
					out.Rejected++
					if problem.Code == protocol.CodeUnavailable {
						unavailable++
					}
				}
			}
			if out.Accepted == 0 && unavailable > 0 {
				return out, httpapi.Problem(protocol.CodeUnavailable, rest.UnavailableDetail)
			}
			return out, nil
		}, rest.Held, rest.Status(http.StatusAccepted), rest.MaxBody(maxBatchBody), rest.ReadFor(batchReadLimit))
}

// submitBatch submits the items side by side. Once Temporal is away it does not wait for it again for each item.
func (h *Handlers) submitBatch(ctx context.Context, schema *itemSchema, items []batchItem) []api.BatchItem {
	answers := make([]api.BatchItem, len(items))
	var away atomic.Bool
	h.EachElement(ctx, len(items), func(ctx context.Context, i int) {
		request, err := schema.read(items[i].raw)
		var task api.Task
		switch {
		case err != nil:
		case away.Load():
			err = httpapi.Problem(protocol.CodeUnavailable, rest.UnavailableDetail)
		default:
			task, err = h.submit(ctx, &request, "")
		}
		answers[i] = batchAnswer(task, err)
		if e := answers[i].Error; e != nil && e.Code == protocol.CodeUnavailable {
			away.Store(true)
		}
	})
	return answers
}

// itemSchema is the schema of POST /api/v1/agents/tasks.
type itemSchema struct {
	registry huma.Registry
	task     *huma.Schema
}

// read holds one item to the schema of a task.
func (s *itemSchema) read(raw json.RawMessage) (api.TaskRequest, error) {
	var request api.TaskRequest
	err := httpapi.ReadJSON(s.registry, s.task, raw, &request)
	return request, err
}

func batchAnswer(task api.Task, err error) api.BatchItem {
	if err == nil {
		return api.BatchItem{ID: task.ID, Status: task.Status, Duplicate: task.Duplicate}
	}
	return api.BatchItem{Error: rest.ElementError(err)}
}
