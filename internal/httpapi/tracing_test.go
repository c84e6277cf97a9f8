package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/protocol"
)

// parent is what a client sends that traces.
const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// tracedServer has a route that answers as asked.
func tracedServer(tracer trace.Tracer) http.Handler {
	s := httpapi.New(httpapi.Options{Tracer: tracer})
	httpapi.Register(s.API(), access.Open, huma.Operation{OperationID: "thing", Method: http.MethodGet,
		Path: "/things/{id}", Summary: "x", Tags: []string{"x"}},
		func(_ context.Context, in *struct {
			ID string `path:"id"`
		}) (*struct{}, error) {
			if in.ID == "bad" {
				return nil, httpapi.Problem(protocol.CodeUnavailable, "away")
			}
			return nil, nil
		})
	return s.Handler()
}

func get(h http.Handler, path, traceparent string) {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	if traceparent != "" {
		r.Header.Set("traceparent", traceparent)
	}
	h.ServeHTTP(httptest.NewRecorder(), r)
}

func TestRequestsAreTraced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, parent string
		span, trace  string
		status       codes.Code
	}{
		"in the client's trace": {"/things/1", parent, "GET /things/{id}", "4bf92f3577b34da6a3ce929d0e0e4736",
			codes.Unset},
		"a trace of its own":     {"/things/1", "", "GET /things/{id}", "", codes.Unset},
		"a broken traceparent":   {"/things/1", "00-zz", "GET /things/{id}", "", codes.Unset},
		"an error of the server": {"/things/bad", "", "GET /things/{id}", "", codes.Error},
		"a probe":                {"/healthz", parent, "", "", codes.Unset},
		"metrics":                {"/metrics", parent, "", "", codes.Unset},
		"no such path":           {"/nothing/here", parent, "", "", codes.Unset},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans := tracetest.NewInMemoryExporter()
			get(tracedServer(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("")), c.path, c.parent)
			if c.span == "" {
				require.Empty(t, spans.GetSpans())
				return
			}
			require.Len(t, spans.GetSpans(), 1)
			span := spans.GetSpans()[0]
			require.Equal(t, c.span, span.Name)
			require.Equal(t, trace.SpanKindServer, span.SpanKind)
			require.Equal(t, c.status, span.Status.Code)
			if c.trace != "" {
				require.Equal(t, c.trace, span.SpanContext.TraceID().String())
				require.Equal(t, "00f067aa0ba902b7", span.Parent.SpanID().String())
			}
		})
	}
}

// Tracing that is off is no handler at all.
func BenchmarkRequest(b *testing.B) {
	for name, tracer := range map[string]trace.Tracer{
		"off": nil, "not sampled": sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer(""),
		"sampled": sdktrace.NewTracerProvider().Tracer(""),
	} {
		b.Run(name, func(b *testing.B) {
			h := tracedServer(tracer)
			for b.Loop() {
				get(h, "/things/1", "")
			}
		})
	}
}
