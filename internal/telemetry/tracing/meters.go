package tracing

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// Meters sends the metrics of a process to where the environment says, as New does with spans; by default each minute.
// stop sends the rest, within flushLimit.
func Meters(
	ctx context.Context, getenv func(string) string, service, version string,
) (meters metric.MeterProvider, stop func(), err error) {
	on, err := wanted(getenv, "METRICS")
	if err != nil || !on {
		return noop.NewMeterProvider(), func() {}, err
	}
	grpc, err := overGRPC(getenv, "METRICS")
	if err != nil {
		return nil, nil, err
	}
	described, err := describe(ctx, service, version)
	if err != nil {
		return nil, nil, err
	}
	var exporter sdkmetric.Exporter
	if grpc {
		exporter, err = otlpmetricgrpc.New(ctx)
	} else {
		exporter, err = otlpmetrichttp.New(ctx)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("set up the export of metrics: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithResource(described),
		sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
	return provider, func() {
		limited, cancel := context.WithTimeout(context.Background(), flushLimit)
		defer cancel()
		_ = provider.Shutdown(limited) // unsent metrics are lost: they must not hold up a stop
	}, nil
}
