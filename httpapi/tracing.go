package httpapi

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/mainstay/protocol"
)

// untraced are routes that are asked all the time, or held open: their spans would say nothing.
var untraced = map[string]bool{
	protocol.PollPath: true, "/metrics": true, "/healthz": true, "/readyz": true, "/health": true,
	"/api/v1/agents/events": true,
}

// traced makes a span of each request, in the trace of the client that sent a traceparent.
func traced(tracer trace.Tracer) gin.HandlerFunc {
	return func(c *gin.Context) {
		pattern := route(c)
		if c.FullPath() == "" || untraced[pattern] {
			return
		}
		ctx := propagation.TraceContext{}.Extract(c.Request.Context(), propagation.HeaderCarrier(c.Request.Header))
		name := method(c.Request.Method)
		ctx, span := tracer.Start(ctx, name+" "+pattern, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", name),
				attribute.String("http.route", pattern)))
		defer span.End()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
		status := c.Writer.Status()
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, strings.ToLower(http.StatusText(status)))
		}
	}
}
