// Package tracing sends the spans of a process to where the environment says.
package tracing

import (
	"context"
	"fmt"
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
	if on, err := wanted(getenv); err != nil || !on {
		return &Tracing{}, err
	}
	exporter, err := newExporter(ctx, getenv)
	if err != nil {
		return nil, fmt.Errorf("set up the export of traces: %w", err)
	}
	return NewTo(ctx, service, version, sdktrace.WithBatcher(exporter))
}

// NewTo is tracing with the options given, such as another exporter.
func NewTo(
	ctx context.Context, service, version string, options ...sdktrace.TracerProviderOption,
) (*Tracing, error) {
	described, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service),
			attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe the process for traces: %w", err)
	}
	return &Tracing{provider: sdktrace.NewTracerProvider(append(options, sdktrace.WithResource(described))...)}, nil
}

// wanted reports whether the environment asks for traces.
func wanted(getenv func(string) string) (bool, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch getenv("OTEL_TRACES_EXPORTER") {
	case "otlp":
		return true, nil
	case "none":
		return false, nil
	case "":
		return getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "", nil
	}
	return false, fmt.Errorf("OTEL_TRACES_EXPORTER must be otlp or none")
}

func newExporter(ctx context.Context, getenv func(string) string) (sdktrace.SpanExporter, error) {
	protocol := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	switch protocol {
	case "grpc":
		return otlptracegrpc.New(ctx)
	case "", "http/protobuf":
		return otlptracehttp.New(ctx)
	}
	return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or grpc")
}

// On reports whether spans go anywhere.
func (t *Tracing) On() bool { return t != nil && t.provider != nil }

// Provider makes tracers; while tracing is off, such as record nothing.
func (t *Tracing) Provider() trace.TracerProvider {
	if !t.On() {
		return noop.NewTracerProvider()
	}
	return t.provider
}

// Stop hands on what is left. It may be called twice.
func (t *Tracing) Stop(ctx context.Context) error {
	if !t.On() {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// flushLimit bounds Close.
const flushLimit = 3 * time.Second

// Close hands on what is left, within flushLimit. What cannot be handed on is lost: it must not hold up a stop.
func (t *Tracing) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	_ = t.Stop(ctx)
}
