package tracing

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

func TestTracingByTheEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env map[string]string
		on  bool
		err string
	}{
		"nothing":               {nil, false, ""},
		"an endpoint":           {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, true, ""},
		"an endpoint of traces": {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, true, ""},
		"the exporter":          {map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		"gRPC": {map[string]string{"OTEL_TRACES_EXPORTER": "otlp",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, true, ""},
		"none": {map[string]string{"OTEL_TRACES_EXPORTER": "none",
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, false, ""},
		"switched off": {map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, false,
			""},
		"another exporter": {map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, false, "must be otlp or none"},
		"another protocol": {map[string]string{"OTEL_TRACES_EXPORTER": "otlp",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, false, "must be http/protobuf or grpc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracing, err := New(t.Context(), func(name string) string { return c.env[name] }, "mainstay", "v1")
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.on, tracing.On())
			_, span := tracing.Provider().Tracer("").Start(t.Context(), "x")
			require.Equal(t, c.on, span.IsRecording())
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // nobody listens there
			_ = tracing.Stop(ctx)
			_ = tracing.Stop(ctx)
		})
	}
	require.False(t, (*Tracing)(nil).On())
	require.NoError(t, (*Tracing)(nil).Stop(t.Context()))
}

// Spans reach a collector that speaks OTLP over HTTP, under the service's name.
func TestTracesAreExported(t *testing.T) {
	got := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- r.Method +
			" " + r.URL.Path
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	tracing, err := New(t.Context(), func(string) string { return collector.URL }, "mainstay", "v1")
	require.ErrorContains(t, err, "OTEL_TRACES_EXPORTER", "the same value for all is none for this")
	require.False(t, tracing.On())
	tracing, err = New(t.Context(), func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL}[name]
	}, "mainstay", "v1")
	require.NoError(t, err)
	_, span := tracing.Provider().Tracer("").Start(t.Context(), "x")
	span.End()
	require.NoError(t, tracing.Stop(t.Context()))
	require.Equal(t, "POST /v1/traces", <-got)
}

func TestTheEnvironmentNamesTheService(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	for _, want := range []string{"mainstay", "plane-7"} {
		if want != "mainstay" {
			t.Setenv("OTEL_SERVICE_NAME", want)
		}
		tracing, err := NewTo(t.Context(), "mainstay", "v1", sdktrace.WithSyncer(spans))
		require.NoError(t, err)
		_, span := tracing.Provider().Tracer("").Start(t.Context(), "x")
		span.End()
		name, found := spans.GetSpans()[0].Resource.Set().Value("service.name")
		require.True(t, found)
		require.Equal(t, want, name.AsString())
		spans.Reset()
	}
}
