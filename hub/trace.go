package hub

import (
	"context"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// temporalTraceField is where the Temporal SDK's tracing keeps the trace of what scheduled an activity.
const temporalTraceField = "_tracer-data"

// traceDelivery begins the span of a delivery, from the lane until an agent has accepted it, in the trace of its task.
// Where nobody traces, what the task was given is only passed on.
func (a *attempt) traceDelivery(h *Hub, header *commonpb.Header) {
	carrier := propagation.MapCarrier{}
	if payload := header.GetFields()[temporalTraceField]; payload != nil {
		// by whom ever it was written: without it there is no trace
		_ = converter.GetDefaultDataConverter().FromPayload(payload, &carrier)
	}
	if len(carrier) == 0 {
		return
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier) //nolint:forbidigo // it carries the trace only
	ctx, a.span = h.tracer.Start(ctx, "deliver "+a.input.Spec.Type, trace.WithTimestamp(a.takenAt),
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
			attribute.String("mainstay.task", a.task), attribute.Int("mainstay.attempt", a.number),
			attribute.String("mainstay.cluster", a.input.Spec.Cluster),
			attribute.String("mainstay.lane", a.lane), attribute.String("mainstay.hub", h.id)))
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

// traceFailed ends the span of a delivery that came to nothing. One that was accepted has ended already, which this
// does not change.
func (a *attempt) traceFailed(why string) {
	if a.span != nil {
		a.span.SetStatus(codes.Error, why)
		a.span.End()
	}
}
