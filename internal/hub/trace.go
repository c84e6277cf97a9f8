package hub

import (
	"context"
	"time"

	commonpb "go.temporal.io/api/common/v1"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// temporalTraceField is the header in which the Temporal SDK keeps the trace that scheduled an activity.
const temporalTraceField = "_tracer-data"

// traceDelivery begins the span of a delivery in the trace of its task; the span lasts from the lane until an agent has
// accepted it. Without tracing it only passes the task's trace on.
func (a *attempt) traceDelivery(h *Hub, header *commonpb.Header) {
	carrier := propagation.MapCarrier{}
	if payload := header.GetFields()[temporalTraceField]; payload != nil {
		// An unreadable payload means that there is no trace.
		_ = contract.Payloads.FromPayload(payload, &carrier)
	}
	if len(carrier) == 0 {
		return
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier) //nolint:forbidigo // only the trace
	ctx, a.span = h.tracer.Start(ctx, "deliver "+a.input.Spec.Type, trace.WithTimestamp(a.takenAt),
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
			attribute.String("mainstay.task", a.Task), attribute.Int("mainstay.attempt", a.Attempt),
			attribute.String("mainstay.cluster", a.input.Spec.Cluster),
			attribute.String("mainstay.lane", a.Lane), attribute.String("mainstay.hub", h.id)))
	if id := a.input.Spec.Labels[api.LabelCorrelation]; id != "" {
		a.span.SetAttributes(attribute.String("mainstay.correlation_id", id))
	}
	a.trace = propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, a.trace)
}

// traceAccepted ends the span of a delivery that an agent has accepted.
func (a *attempt) traceAccepted(now time.Time) {
	if a.span != nil {
		a.span.SetAttributes(attribute.String("mainstay.agent", a.session.agent),
			attribute.Int64("mainstay.epoch", a.session.epoch))
		a.span.End(trace.WithTimestamp(now))
	}
}

// traceFailed ends the span of a failed delivery. The span of an accepted delivery has already ended and stays as it
// is.
func (a *attempt) traceFailed(why string) {
	if a.span != nil {
		a.span.SetStatus(codes.Error, why)
		a.span.End()
	}
}
