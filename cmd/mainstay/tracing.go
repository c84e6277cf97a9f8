package main

import (
	"context"
	"time"

	"mainstay.dev/mainstay/telemetry"
)

// flushLimit bounds handing on the last spans.
const flushLimit = 3 * time.Second

// tracing is set up by the standard OTEL_ variables; off without them.
func (a *app) tracing(ctx context.Context) (*telemetry.Tracing, error) {
	tracing, err := telemetry.NewTracing(ctx, a.getenv, "mainstay", version)
	return tracing, withExit(exitUsage, err)
}

// stopTracing hands on the last spans. What cannot be handed on is lost: it must not hold up a stop.
func stopTracing(t *telemetry.Tracing) {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	_ = t.Stop(ctx)
}
