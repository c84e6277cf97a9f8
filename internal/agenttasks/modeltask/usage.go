package modeltask

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"mainstay.dev/sdk/api"
)

// usage are the metrics of calls, by OpenTelemetry's conventions for generative AI.
type usage struct {
	tokens   metric.Int64Histogram
	duration metric.Float64Histogram
}

// newUsage makes the metrics with the program's provider of meters.
func newUsage() (u usage, err error) {
	meter := otel.Meter("mainstay.dev/mainstay/internal/agenttasks/modeltask")
	u.tokens, err = meter.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
		metric.WithDescription("Tokens of a call, in or out."),
		metric.WithExplicitBucketBoundaries(powers(1, 4, 14)...))
	if err != nil {
		return u, fmt.Errorf("make the metric of tokens: %w", err)
	}
	u.duration, err = meter.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("How long a call took."), metric.WithExplicitBucketBoundaries(powers(0.01, 2, 14)...))
	if err != nil {
		return u, fmt.Errorf("make the metric of times: %w", err)
	}
	return u, nil
}

// powers are n numbers, each the one before multiplied by times.
func powers(first, times float64, n int) (list []float64) {
	for range n {
		list = append(list, first)
		first *= times
	}
	return list
}

// record records a call; wrong is the type of its error, or empty.
func (u *usage) record(ctx context.Context, r *api.Route, i *Invocation, wrong string, took time.Duration) {
	attributes := []attribute.KeyValue{attribute.String("gen_ai.operation.name", "chat"),
		attribute.String("gen_ai.provider.name", r.Provider), attribute.String("gen_ai.request.model", r.Model)}
	if i.AnsweredBy != "" {
		attributes = append(attributes, attribute.String("gen_ai.response.model", i.AnsweredBy))
	}
	call := metric.WithAttributes(attributes...)
	if wrong != "" {
		u.duration.Record(ctx, took.Seconds(), call, metric.WithAttributes(attribute.String("error.type", wrong)))
		return
	}
	u.duration.Record(ctx, took.Seconds(), call)
	for direction, n := range map[string]int{"input": i.InputTokens, "output": i.OutputTokens} {
		u.tokens.Record(ctx, int64(n), call, metric.WithAttributes(attribute.String("gen_ai.token.type", direction)))
	}
}

// errorType is the type of a failure, or empty.
func errorType(err error) string {
	typed, ok := errors.AsType[interface {
		error
		ErrorType() string
	}](err)
	if !ok {
		return ""
	}
	return typed.ErrorType()
}
