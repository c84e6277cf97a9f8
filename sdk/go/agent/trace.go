package agent

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// tracerName is the instrumentation's name in spans.
const tracerName = "mainstay.dev/sdk/agent"

// tracer is that of the options, else OpenTelemetry's global one, which records nothing unless the program set one up.
func (a *Agent) tracer() trace.Tracer {
	provider := a.options.TracerProvider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return provider.Tracer(tracerName)
}

// startSpan begins the span of an attempt in the trace of its task, and returns the context with it. Without a trace it
// begins none.
func (at *attempt) startSpan(ctx context.Context, a protocol.Assignment) context.Context {
	at.span = trace.SpanFromContext(context.Background()) // records nothing
	if a.TraceParent == "" {
		return ctx
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": a.TraceParent,
		"tracestate": a.TraceState})
	ctx, at.span = at.run.agent.tracer().Start(ctx, "run "+a.Type, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("mainstay.task", a.TaskID), attribute.Int("mainstay.attempt", a.Attempt),
			attribute.String("mainstay.cluster", a.Cluster),
			attribute.String("mainstay.agent", at.run.agent.options.ID), attribute.String("mainstay.transferred_from",
				a.TransferredFrom)))
	if id := a.Labels[api.LabelCorrelation]; id != "" {
		at.span.SetAttributes(attribute.String("mainstay.correlation_id", id))
	}
	return ctx
}

// endSpan ends the span of an attempt with its result.
func (at *attempt) endSpan(result *protocol.Result) {
	at.span.SetAttributes(attribute.String("mainstay.outcome", string(result.Outcome)))
	if result.Outcome != api.AttemptCompleted {
		at.span.SetStatus(codes.Error, result.Error)
	}
	at.span.End()
}

// TraceHeaders returns the W3C trace context of a handler's context, as headers of a request or, in upper case,
// variables of a command: traceparent and tracestate. Without a trace it is empty.
func TraceHeaders(ctx context.Context) map[string]string {
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	return headers
}
