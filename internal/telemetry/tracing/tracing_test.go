package tracing

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

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

// Metrics go where the spans go, and what is left does at the stop.
func TestMetricsAreExported(t *testing.T) {
	got := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + string(body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	for exporter, want := range map[string]string{"": "tokens", "none": ""} {
		meters, stop, err := Meters(t.Context(), func(name string) string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_METRICS_EXPORTER": exporter}[name]
		}, "mainstay", "v1")
		require.NoError(t, err)
		counter, err := meters.Meter("").Int64Counter("tokens")
		require.NoError(t, err)
		counter.Add(t.Context(), 1)
		stop()
		if want == "" {
			require.Empty(t, got)
			continue
		}
		sent := <-got
		require.Contains(t, sent, "/v1/metrics")
		require.Contains(t, sent, want)
	}
	_, _, err := Meters(t.Context(), func(string) string { return "zipkin" }, "mainstay", "v1")
	require.ErrorContains(t, err, "OTEL_METRICS_EXPORTER must be otlp or none")
}

// collected counts the spans that a collector got, by their ids.
type collected struct {
	mu     sync.Mutex
	spans  map[string]int
	refuse int // so many requests, which are read before
}

// ServeHTTP implements http.Handler.
func (c *collected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var sent collectorpb.ExportTraceServiceRequest
	data, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(data, &sent)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range sent.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans[hex.EncodeToString(span.GetSpanId())]++
			}
		}
	}
	if c.refuse--; c.refuse >= 0 || err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (c *collected) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spans)
}

// front closes each connection until it is open.
type front struct {
	net.Listener
	open   atomic.Bool
	closed atomic.Int64
}

// Accept implements net.Listener.
func (f *front) Accept() (net.Conn, error) {
	for {
		connection, err := f.Listener.Accept()
		if err != nil || f.open.Load() {
			return connection, err
		}
		_ = connection.Close()
		f.closed.Add(1)
	}
}

// A collector that is not there misses nothing, nor does one that fails after it has read: it gets the same ids again.
// What is left goes out at the stop.
func TestSpansOutlastTheirCollector(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	c := &collected{spans: map[string]int{}, refuse: 1}
	collector := httptest.NewUnstartedServer(c)
	door := &front{Listener: collector.Listener}
	collector.Listener = door
	collector.Start()
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	tracing, err := New(t.Context(), func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL}[name]
	}, "mainstay", "v1")
	require.NoError(t, err)
	const each = 600 // more than a batch
	begin := func() (ids []string) {
		for range each {
			_, span := tracing.Provider().Tracer("").Start(t.Context(), "x")
			ids = append(ids, span.SpanContext().SpanID().String())
			span.End()
		}
		return ids
	}
	ids := begin()
	require.Eventually(t, func() bool { return door.closed.Load() > 0 }, 20*time.Second, time.Millisecond)
	door.open.Store(true)
	require.Eventually(t, func() bool { return c.count() == each }, 20*time.Second, 10*time.Millisecond,
		"what ended before the collector was there")
	ids = append(ids, begin()...)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, tracing.Stop(ctx))
	require.Equal(t, 2*each, c.count())
	repeated := 0
	for _, id := range ids {
		require.NotZero(t, c.spans[id], "span %s is lost", id)
		repeated += c.spans[id] - 1
	}
	require.Positive(t, repeated, "what was refused came again")
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
