package gateway

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/protocol"
	"mainstay.dev/mainstay/store"
)

type submitInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"258" doc:"The same as idempotency_key in the body. With quotes around it or without."`
	Body           api.TaskRequest
}

type submitOutput struct {
	Status int
	Body   api.Task
}

func (g *Gateway) registerSubmit(routes huma.API) {
	task := routes.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[api.Task](), true, "Task")
	httpapi.Register(routes, access.Operate.Scoped(), huma.Operation{
		OperationID: "submit-task", Method: http.MethodPost, Path: "/api/v1/agents/tasks", Tags: []string{"Tasks"},
		Summary: "Submit a task", DefaultStatus: http.StatusAccepted,
		Description: "Answers 202 once the task is durable. A task whose id or idempotency key was submitted before is answered as it stands, with 200 and \"duplicate\": true; with another body it is refused with 409 idempotency_conflict.",
		Responses: map[string]*huma.Response{"200": {
			Description: "It was submitted before", Content: map[string]*huma.MediaType{"application/json": {Schema: task}},
		}},
	}, func(ctx context.Context, in *submitInput) (*submitOutput, error) {
		if err := takeKey(&in.Body, in.IdempotencyKey); err != nil {
			return nil, err
		}
		task, err := g.submit(ctx, &in.Body)
		if err != nil {
			return nil, err
		}
		status := http.StatusAccepted
		if task.Duplicate {
			status = http.StatusOK
		}
		return &submitOutput{Status: status, Body: task}, nil
	})
	g.registerBatch(routes)
}

// submit starts the task's workflow, or answers the task that was started under its id before.
func (g *Gateway) submit(ctx context.Context, r *api.TaskRequest) (task api.Task, err error) {
	defer func() { g.count(task, err) }()
	named, ok := ownID(ctx, r.ID)
	if !ok {
		return api.Task{}, unknown(protocol.CodeUnknownTask)
	}
	if r.Tenant == "" {
		r.Tenant, _ = fleet.CutTenant(named)
	}
	if r.Tenant, err = ownTenant(ctx, r.Tenant); err != nil {
		return api.Task{}, err
	}
	spec := r.TaskSpec
	spec.StartAt = spec.StartAt.UTC()
	if err := spec.Validate(); err != nil {
		return api.Task{}, invalid("body", err)
	}
	if err := fleet.ValidateStartAt(spec.StartAt, time.Now()); err != nil {
		return api.Task{}, invalid("body.start_at", err)
	}
	digest, err := spec.Digest()
	if err != nil {
		return api.Task{}, invalid("body.payload", err)
	}
	id, err := idOf(r, g.newID)
	if err != nil {
		return api.Task{}, invalid("body.id", err)
	}
	access.Touch(ctx, "task", id)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	facts, err := g.knownCluster(ctx, spec.Cluster)
	if err != nil {
		return api.Task{}, err
	}
	facts.defaults.Apply(&spec)
	if facts.shards > 0 && spec.ShardKey == "" {
		spec.ShardKey = id
	}
	lane := contract.Lane(&spec, facts.shards)
	if len(spec.RequiredCapabilities) > 0 && lane == contract.CapabilityLane(spec.Cluster, spec.RequiredCapabilities) {
		if err := g.openLane(ctx, spec.Cluster, spec.RequiredCapabilities); err != nil {
			return api.Task{}, err
		}
	}
	started, err := g.store.Tasks().Start(ctx, &store.Submission{
		TaskInput: contract.TaskInput{TaskID: id, Spec: spec, Lane: lane, DeadLetterRetention: facts.deadLetterRetention},
		Digest:    digest, TraceID: recordedTrace(ctx), Weight: facts.weights[spec.Tenant],
	})
	if store.KindOf(err) == store.Exists {
		return g.duplicate(ctx, id, digest)
	}
	return started.Task, g.answer(err, "start a task", protocol.CodeInternal)
}

// recordedTrace is the id of the trace that a context is in, or "" if nobody records it.
func recordedTrace(ctx context.Context) string {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() && span.IsSampled() {
		return span.TraceID().String()
	}
	return ""
}

// duplicate answers the task that was submitted before, unless that was with another body.
func (g *Gateway) duplicate(ctx context.Context, id, digest string) (api.Task, error) {
	first, err := g.describeTask(ctx, id)
	if err != nil {
		return api.Task{}, err
	}
	if first.Digest != "" && first.Digest != digest {
		return api.Task{}, httpapi.Problem(protocol.CodeIdempotency,
			"a task with this id or idempotency key was submitted before with another body: submit the same body, or use another id or key")
	}
	task, err := g.complete(ctx, first)
	task.Duplicate = true
	return task, err
}

func (g *Gateway) count(task api.Task, err error) {
	switch {
	case err != nil:
		g.submitted.WithLabelValues("rejected").Inc()
	case task.Duplicate:
		g.submitted.WithLabelValues("duplicate").Inc()
	default:
		g.submitted.WithLabelValues("accepted").Inc()
	}
}
