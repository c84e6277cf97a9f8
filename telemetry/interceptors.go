package telemetry

import (
	"fmt"

	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"

	"mainstay.dev/mainstay/telemetry/tracing"
)

// Interceptors carry traces through Temporal: give them to the client, which hands them to its workers. There are none
// while tracing is off. Queries are left out: metrics and pages ask them all the time.
func Interceptors(t *tracing.Tracing) ([]interceptor.ClientInterceptor, error) {
	if !t.On() {
		return nil, nil
	}
	made, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{
		Tracer:                  t.Provider().Tracer("mainstay.dev/mainstay"),
		DisableQueryTracing:     true,
		DisableBaggage:          true,
		AllowInvalidParentSpans: true,
	})
	if err != nil {
		return nil, fmt.Errorf("trace calls of Temporal: %w", err)
	}
	return []interceptor.ClientInterceptor{made}, nil
}
