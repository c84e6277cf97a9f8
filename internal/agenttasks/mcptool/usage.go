package mcptool

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// newDuration makes the metric of how long calls take, by OpenTelemetry's conventions for generative AI, with the
// program's provider of meters.
func newDuration() metric.Float64Histogram {
	// The name is valid, so there is no error.
	duration, _ := otel.Meter("mainstay.dev/mainstay/internal/agenttasks/mcptool").Float64Histogram("gen_ai.client.operation.duration",
		metric.WithUnit("s"), metric.WithDescription("How long a call took."),
		metric.WithExplicitBucketBoundaries(0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84))
	return duration
}

// record records a call that ended with err.
func (t *Tools) record(ctx context.Context, server, tool string, err error, took time.Duration) {
	attributes := []attribute.KeyValue{attribute.String("gen_ai.operation.name", "execute_tool"),
		attribute.String("gen_ai.tool.name", tool), attribute.String("server.address", server)}
	if err != nil {
		wrong := "_OTHER" // as the conventions have it
		if typed, ok := errors.AsType[interface {
			error
			ErrorType() string
		}](err); ok {
			wrong = typed.ErrorType()
		}
		attributes = append(attributes, attribute.String("error.type", wrong))
	}
	t.duration.Record(ctx, took.Seconds(), metric.WithAttributes(attributes...))
}
