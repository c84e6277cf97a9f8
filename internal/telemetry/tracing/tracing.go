// Package tracing sends the spans of a process to where the environment says.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Tracing is a process's tracing. The zero value is off, and costs nothing.
type Tracing struct {
	provider *sdktrace.TracerProvider
}

// New sets tracing up as the standard OTEL_ variables say. It is off unless OTEL_TRACES_EXPORTER is otlp, or an
// OTLP endpoint is named. The SDK itself reads the sampler, the limits and what else there is.
func New(ctx context.Context, getenv func(string) string, service, version string) (*Tracing, error) {
	if on, err := wanted(getenv, "TRACES"); err != nil || !on {
		return &Tracing{}, err
	}
	exporter, err := newExporter(ctx, getenv)
	if err != nil {
		return nil, fmt.Errorf("set up the export of traces: %w", err)
	}
	var batching []sdktrace.BatchSpanProcessorOption
	if getenv("OTEL_BSP_EXPORT_TIMEOUT") == "" {
		batching = append(batching, sdktrace.WithExportTimeout(awayLimit))
	}
	if getenv("OTEL_BSP_MAX_QUEUE_SIZE") == "" {
		batching = append(batching, sdktrace.WithMaxQueueSize(maxWaiting))
	}
	return NewTo(ctx, service, version, sdktrace.WithBatcher(patient{exporter}, batching...))
}

const (
	// awayLimit is how long a collector may be away, or refuse, before spans are lost. maxWaiting bounds how many wait.
	awayLimit  = 3 * time.Minute
	maxWaiting = 16384
	// again is the wait before spans are sent once more.
	again = time.Second
)

// patient sends spans again while the collector cannot be reached. Spans sent twice keep their ids.
type patient struct{ sdktrace.SpanExporter }

// ExportSpans implements sdktrace.SpanExporter.
func (p patient) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	for {
		err := p.SpanExporter.ExportSpans(ctx, spans)
		if unreached := (*url.Error)(nil); err == nil || !errors.As(err, &unreached) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(again):
		}
	}
}

// NewTo is tracing with the options given, such as another exporter.
func NewTo(
	ctx context.Context, service, version string, options ...sdktrace.TracerProviderOption,
) (*Tracing, error) {
	described, err := describe(ctx, service, version)
	if err != nil {
		return nil, err
	}
	return &Tracing{provider: sdktrace.NewTracerProvider(append(options, sdktrace.WithResource(described))...)}, nil
}

// describe describes the process in what it sends.
func describe(ctx context.Context, service, version string) (*resource.Resource, error) {
	described, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service),
			attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe the process for what it sends: %w", err)
	}
	return described, nil
}

// wanted reports whether the environment asks for a signal: TRACES or METRICS.
func wanted(getenv func(string) string, signal string) (bool, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch name := "OTEL_" + signal + "_EXPORTER"; getenv(name) {
	case "otlp":
		return true, nil
	case "none":
		return false, nil
	case "":
		own := "OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT"
		return getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv(own) != "", nil
	default:
		return false, fmt.Errorf("%s must be otlp or none", name)
	}
}

// overGRPC reports whether a signal goes over gRPC, and not over HTTP.
func overGRPC(getenv func(string) string, signal string) (bool, error) {
	switch cmp.Or(getenv("OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL")) {
	case "grpc":
		return true, nil
	case "", "http/protobuf":
		return false, nil
	}
	return false, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or grpc")
}

func newExporter(ctx context.Context, getenv func(string) string) (sdktrace.SpanExporter, error) {
	grpc, err := overGRPC(getenv, "TRACES")
	switch {
	case err != nil:
		return nil, err
	case grpc:
		return otlptracegrpc.New(ctx, otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
			Enabled: true, InitialInterval: again, MaxInterval: again, MaxElapsedTime: awayLimit}))
	}
	return otlptracehttp.New(ctx, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
		Enabled: true, InitialInterval: again, MaxInterval: again, MaxElapsedTime: awayLimit}))
}

// On reports whether spans go anywhere.
func (t *Tracing) On() bool { return t != nil && t.provider != nil }

// Provider makes tracers; while tracing is off, they record nothing.
func (t *Tracing) Provider() trace.TracerProvider {
	if !t.On() {
		return noop.NewTracerProvider()
	}
	return t.provider
}

// Stop sends the remaining spans. It may be called twice.
func (t *Tracing) Stop(ctx context.Context) error {
	if !t.On() {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// flushLimit bounds Close.
const flushLimit = 3 * time.Second

// Close sends the remaining spans, within flushLimit. The rest is lost: it must not hold up a stop.
func (t *Tracing) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	_ = t.Stop(ctx)
}
