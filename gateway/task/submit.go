// Package task answers what clients ask about tasks: submit, read, list, follow and change them.
package task

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct {
	*rest.Core
	submitted *prometheus.CounterVec
	looks     looks
}

// New makes the handlers; registerer, if there is one, takes their metrics.
func New(core *rest.Core, registerer prometheus.Registerer) *Handlers {
	submitted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mainstay_gateway_tasks_submitted_total",
		Help: "Tasks submitted, by outcome: accepted, duplicate or rejected.",
	}, []string{"outcome"})
	if registerer != nil {
		registerer.MustRegister(submitted)
	}
	return &Handlers{Core: core, submitted: submitted, looks: looks{tasks: map[string]*look{}}}
}

type submitInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"258" doc:"The same as idempotency_key in the body. With quotes around it or without."`
	Body           api.TaskRequest
}

// submittedBefore documents the answer to what was submitted before.
var submittedBefore = rest.Also(http.StatusOK, "It was submitted before")

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Tasks").Scoped()
	rest.Respond(r, "submit-task", "POST /tasks", "Submit a task",
		"Answers 202 once the task is durable. A task whose id or idempotency key was submitted before is "+
			"answered as it stands, with 200 and \"duplicate\": true; with another body it is refused with 409 "+
			"idempotency_conflict.",
		func(ctx context.Context, in *submitInput) (*rest.StatusOutput[api.Task], error) {
			if err := takeKey(&in.Body, in.IdempotencyKey); err != nil {
				return nil, err
			}
			task, err := h.submit(ctx, &in.Body, "")
			return rest.Begun(task, task.Duplicate, err)
		}, rest.Held, rest.Payload, rest.Status(http.StatusAccepted), submittedBefore)
	h.registerRerun(r)
	h.registerBatch(r, routes.OpenAPI().Components.Schemas)
	h.registerLists(r)
	h.registerLog(r)
	h.registerActions(r)
}

// submit starts the task's workflow, or answers the task that was started under its id before. rerunOf is the task that
// it repeats; "": none.
func (h *Handlers) submit(ctx context.Context, r *api.TaskRequest, rerunOf string) (task api.Task, err error) {
	defer func() { h.count(task, err) }()
	named, ok := rest.OwnID(ctx, r.ID)
	if !ok {
		return api.Task{}, rest.Unknown(protocol.CodeUnknownTask)
	}
	if r.Tenant == "" {
		r.Tenant, _ = api.CutTenant(named)
	}
	if r.Tenant, err = rest.OwnTenant(ctx, r.Tenant); err != nil {
		return api.Task{}, err
	}
	spec := r.TaskSpec
	spec.StartAt, spec.ExpiresAt = spec.StartAt.UTC(), spec.ExpiresAt.UTC()
	if err := cmp.Or(spec.Validate(), payload.Task(&spec)); err != nil {
		return api.Task{}, rest.Invalid("body", err)
	}
	if err := api.ValidateStartAt(spec.StartAt, time.Now()); err != nil {
		return api.Task{}, rest.Invalid("body.start_at", err)
	}
	spec.Recovery = spec.EffectiveRecovery()
	digest, err := spec.Digest()
	if err != nil {
		return api.Task{}, rest.Invalid("body.payload", err)
	}
	id, err := rest.NewID(r.ID, r.Tenant, r.Cluster, r.IdempotencyKey, api.NewTaskID)
	if err != nil {
		return api.Task{}, rest.Invalid("body.id", err)
	}
	if late := spec.ValidateExpiresAt(time.Now()); late != nil { // a task that was submitted in time stays submitted
		if before, err := h.duplicate(ctx, id, digest); err == nil || !unknown(err) {
			return before, err
		}
		return api.Task{}, rest.Invalid("body.expires_at", late)
	}
	placing, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	place, err := h.Place(placing, spec, id)
	if err != nil {
		return api.Task{}, err
	}
	input := place.Input(id, spec)
	input.By, input.IdempotencyKey, input.RerunOf = rest.Who(ctx), r.IdempotencyKey, rerunOf
	access.Touch(ctx, "task", id)
	var started store.Task
	err = h.InTurn(ctx, func(ctx context.Context) (err error) {
		started, err = h.Store.Tasks().Start(ctx, &store.Submission{
			TaskInput: input,
			Digest:    digest,
			TraceID:   recordedTrace(ctx),
			Weight:    place.TenantWeight,
		})
		return err
	})
	if store.KindOf(err) == store.Exists {
		return h.duplicate(ctx, id, digest)
	}
	return started.Task, h.Answer(err, "start a task", protocol.CodeInternal)
}

// recordedTrace is the id of the trace that a context is in, or "" if nobody records it.
func recordedTrace(ctx context.Context) string {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() && span.IsSampled() {
		return span.TraceID().String()
	}
	return ""
}

// duplicate answers the task that was submitted before, unless that was with another body.
func (h *Handlers) duplicate(ctx context.Context, id, digest string) (api.Task, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	first, err := h.describeTask(ctx, id)
	if err != nil {
		return api.Task{}, err
	}
	if first.Digest != "" && first.Digest != digest {
		return api.Task{}, httpapi.Problem(
			protocol.CodeIdempotency,
			"a task with this id or idempotency key was submitted before with another body: submit the same body, or use "+
				"another id or key",
		)
	}
	task, err := h.complete(ctx, first)
	task.Duplicate = true
	return task, err
}

func unknown(err error) bool {
	code, _ := httpapi.Code(err)
	return code == protocol.CodeUnknownTask
}

func (h *Handlers) count(task api.Task, err error) {
	switch {
	case err != nil:
		h.submitted.WithLabelValues("rejected").Inc()
	case task.Duplicate:
		h.submitted.WithLabelValues("duplicate").Inc()
	default:
		h.submitted.WithLabelValues("accepted").Inc()
	}
}

// takeKey takes the Idempotency-Key header, which means what idempotency_key means in the body. The header's own form
// has quotes around the key; they are no part of it.
func takeKey(r *api.TaskRequest, header string) error {
	key := strings.TrimSpace(header)
	if len(key) >= 2 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		key = key[1 : len(key)-1]
	}
	switch {
	case key == "" && header != "":
		return rest.Invalid("header.Idempotency-Key", errors.New("is empty: leave it out, or give a key"))
	case len(key) > 256:
		return rest.Invalid("header.Idempotency-Key", errors.New("must have at most 256 characters"))
	case key != "" && r.IdempotencyKey != "" && key != r.IdempotencyKey:
		return rest.Invalid("header.Idempotency-Key",
			errors.New("differs from idempotency_key in the body: give one of them"))
	case key != "":
		r.IdempotencyKey = key
	}
	return nil
}
