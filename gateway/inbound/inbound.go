// Package inbound takes events from outside, and answers what clients ask about them: list, read, replay and discard.
package inbound

import (
	"context"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/mainstay/gateway/rest"
	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/mesh"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// Handlers answer the requests.
type Handlers struct{ *rest.Core }

// eventID names an event.
type eventID struct {
	ID string `path:"id" maxLength:"128"`
}

type sendInput struct {
	RawBody []byte `contentType:"application/cloudevents+json"`
	header  http.Header
}

// Resolve keeps the headers: an event in binary mode has its attributes there.
func (in *sendInput) Resolve(ctx huma.Context) []error {
	in.header = http.Header{}
	ctx.EachHeader(func(name, value string) { in.header.Add(name, value) })
	return nil
}

type listInput struct {
	Type   string            `query:"type" maxLength:"255" doc:"Only of this type."`
	Tenant rest.Slug         `query:"tenant"`
	Status api.InboundStatus `query:"status" enum:"received,dispatched,unmatched,quarantined,discarded"`
	rest.RecordPageInput
}

type quarantineInput struct {
	Type   string    `query:"type" maxLength:"255" doc:"Only of this type."`
	Tenant rest.Slug `query:"tenant"`
	rest.RecordPageInput
}

type replayInput struct {
	ID   string `path:"id" maxLength:"128"`
	Body *api.ReplayRequest
}

type discardInput struct {
	ID   string `path:"id" maxLength:"128"`
	Body api.DiscardEventRequest
}

// Register adds the operations.
func (h *Handlers) Register(routes rest.API) {
	r := rest.On(routes, "Inbound events").Scoped()
	schemas := routes.OpenAPI().Components.Schemas
	answer := &huma.Schema{OneOf: []*huma.Schema{schemas.Schema(reflect.TypeFor[api.Inbound](), true, ""),
		schemas.Schema(reflect.TypeFor[api.InboundBatch](), true, "")}}
	rest.Respond(r, "send-event", "POST /events", "Send an event, or a batch of up to 100",
		"Takes a CloudEvent 1.0 in structured or binary mode, or a batch. Answers 202 once it is durable, and 200 with "+
			"\"duplicate\": true for an event whose source and id came before; with other content that is 409 "+
			"idempotency_conflict. A batch is answered as a whole with 202, each event by itself; of a batch with an "+
			"invalid event none is taken: 422 names all that are. The attribute tenant must be the caller's.",
		h.send, rest.Held, rest.MaxBody(mesh.MaxBatchBytes), rest.Status(http.StatusAccepted),
		rest.Answering(answer, "It is durable"), rest.Also(http.StatusOK, "It came before"))
	rest.List(r, "events", "list-inbound", "GET /inbound", "List events from outside",
		"Newest first. An event appears within about a second of its change.", h.list)
	rest.Serve(r, "get-inbound", "GET /inbound/{id}", "Get an event from outside",
		"With what became of it, and as it was received, byte for byte.", h.get)
	rest.List(r, "events", "list-quarantine", "GET /quarantine",
		"List events that could not be dispatched, or whose work died",
		"Newest first. They wait until a person replays or discards them.",
		func(ctx context.Context, in *quarantineInput) (rest.Page[api.InboundEvent], error) {
			return h.list(ctx, &listInput{Type: in.Type, Tenant: in.Tenant, Status: api.InboundQuarantined,
				RecordPageInput: in.RecordPageInput})
		})
	rest.Serve(r, "get-quarantined", "GET /quarantine/{id}", "Get an event that is or was in quarantine",
		"As GET /inbound/{id} does.",
		func(ctx context.Context, in *eventID) (api.Inbound, error) {
			one, err := h.get(ctx, in)
			if err == nil && one.QuarantinedAt == nil {
				err = rest.Unknown(protocol.CodeUnknownEvent)
			}
			return one, err
		})
	rest.Serve(r, "replay-event", "POST /quarantine/{id}/replay", "Have an event dispatched again",
		"With its own data, or with other data; also an event that nothing asked for."+
			" What died of it begins again in its place, with its own data only. "+
			"Answers after the first try, or 409 conflict for an event that does not wait.",
		func(ctx context.Context, in *replayInput) (api.Inbound, error) {
			body := rest.Given(in.Body)
			return change(ctx, h, in.ID, contract.ReplayEventUpdate, contract.ReplayEvent{Data: body.Data,
				RunRequest: contract.RunRequest{By: rest.Actor(ctx), Reason: body.Reason}})
		})
	rest.Serve(r, "discard-event", "POST /quarantine/{id}/discard", "Give an event up",
		"It is kept as long as the namespace keeps closed workflows. Answers 409 conflict for an "+
			"event that does not wait.",
		func(ctx context.Context, in *discardInput) (api.Inbound, error) {
			return change(ctx, h, in.ID, contract.DiscardEventUpdate,
				contract.RunRequest{By: rest.Actor(ctx), Reason: in.Body.Reason})
		})
}

// send accepts events. It checks that all of them are the caller's before it reads or writes anything for one.
func (h *Handlers) send(ctx context.Context, in *sendInput) (*rest.StatusOutput[any], error) {
	events, batch, err := read(ctx, in.header, in.RawBody)
	if err != nil {
		return nil, err
	}
	var wrong wrongEvents
	for i := range events {
		tenant, err := rest.OwnTenant(ctx, events[i].Tenant())
		if err != nil {
			return nil, err
		}
		if tenant != "" {
			events[i].Attributes[api.AttrTenant] = tenant
		}
		wrong.add(i, batch, events[i].Validate())
	}
	if err := wrong.refusal(batch); err != nil {
		return nil, err
	}
	if !batch {
		one, err := h.take(ctx, &events[0])
		return rest.Begun[any](one, one.Duplicate, err)
	}
	ctx, cancel := context.WithTimeout(ctx, rest.BatchLimit)
	defer cancel()
	done, err := h.BatchTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	answer := api.InboundBatch{Events: make([]api.InboundItem, len(events))}
	h.EachElement(ctx, len(events), func(ctx context.Context, i int) {
		one, err := h.take(ctx, &events[i])
		if err == nil {
			answer.Events[i] = api.InboundItem{ID: one.ID, Status: one.Status, Duplicate: one.Duplicate}
			return
		}
		answer.Events[i].Error = rest.ElementError(err)
	})
	return rest.Begun[any](answer, false, nil)
}

// take makes an event durable, or returns the state of one that came before.
func (h *Handlers) take(ctx context.Context, e *api.Envelope) (one api.Inbound, err error) {
	digest, err := mesh.DigestOf(e)
	if err != nil {
		return one, rest.Invalid("body.data", err)
	}
	access.Touch(ctx, "event", mesh.InboundID(e))
	if id := e.Attr(api.AttrCorrelation); id != "" { // of a batch the last
		trace.SpanFromContext(ctx).SetAttributes(attribute.String("mainstay.correlation_id", id))
	}
	if parent := e.Attr(mesh.AttrTraceParent); parent != "" { // the work that it starts joins its sender's trace
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent,
			"tracestate": e.Attr(mesh.AttrTraceState)})
	}
	err = h.InTurn(ctx, func(ctx context.Context) (err error) {
		one.InboundEvent, err = h.Store.StartInbound(ctx, e, digest)
		return err
	})
	if store.KindOf(err) != store.Exists {
		return one, h.Answer(err, "start the workflow of an event", protocol.CodeInternal)
	}
	ctx, cancel := context.WithTimeout(ctx, rest.CallTimeout)
	defer cancel()
	first := ""
	if one.InboundEvent, first, err = h.Store.FirstInbound(ctx, mesh.InboundID(e)); err != nil {
		return one, h.Answer(err, "describe an event", protocol.CodeUnknownEvent)
	}
	if first != digest {
		return api.Inbound{}, httpapi.Problem(protocol.CodeIdempotency,
			"an event with this source and id was sent before with other content: send the same, or use another id")
	}
	one.Duplicate = true
	return one, nil
}

func (h *Handlers) list(ctx context.Context, in *listInput) (page rest.Page[api.InboundEvent], err error) {
	if in.Tenant, err = rest.OwnTenant(ctx, in.Tenant); err != nil {
		return page, err
	}
	query := rest.OfType(contract.InboundWorkflow, rest.Filter(contract.AttrTaskType, in.Type),
		rest.Filter(contract.AttrTenant, in.Tenant), contract.InboundTerm(in.Status))
	page, err = rest.PageOf(ctx, h.Core, "list events", h.Store.InboundEntries().Page, query, in.RecordPageInput)
	seen := map[string]bool{}
	// A later run stands for an earlier one: see ForgetRun.
	page.Items = slices.DeleteFunc(page.Items, func(e api.InboundEvent) bool {
		again := seen[e.ID]
		seen[e.ID] = true
		return again
	})
	return page, err
}

// own is the full id of an event that the request may touch.
func own(ctx context.Context, id string) (string, error) {
	full, ok := rest.OwnID(ctx, id)
	if tenant, _ := api.CutTenant(full); !ok || !api.IsTaskID(full) || !rest.Sees(ctx, tenant) {
		return "", rest.Unknown(protocol.CodeUnknownEvent)
	}
	return full, nil
}

// get is an event with its envelope.
func (h *Handlers) get(ctx context.Context, in *eventID) (one api.Inbound, err error) {
	id, err := own(ctx, in.ID)
	if err != nil {
		return one, err
	}
	one.InboundEvent, err = rest.RecordOf(ctx, h.Core, h.Store.Inbound(), contract.InboundWorkflowID(id), true,
		protocol.CodeUnknownEvent)
	if err != nil {
		return api.Inbound{}, err
	}
	envelope, err := h.Store.Envelope(ctx, id)
	one.Event = &envelope
	return one, h.Answer(err, "read an event", protocol.CodeUnknownEvent)
}

// change runs an update of an event.
func change[In any](
	ctx context.Context, h *Handlers, id string, update contract.Update[In, api.InboundEvent], in In,
) (api.Inbound, error) {
	id, err := own(ctx, id)
	if err != nil {
		return api.Inbound{}, err
	}
	access.Touch(ctx, "event", id)
	record, err := store.Update(ctx, h.Store, update, contract.InboundWorkflowID(id), in)
	return api.Inbound{InboundEvent: record}, h.Answer(err, "change an event", protocol.CodeUnknownEvent)
}
