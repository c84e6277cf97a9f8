package mcptool

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"mainstay.dev/sdk/api"
)

// TestCallsAreMeasured reads the metrics of a call that succeeds and of two that fail.
func TestCallsAreMeasured(t *testing.T) {
	reader, before := sdkmetric.NewManualReader(), otel.GetMeterProvider()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	url, _ := serve(t, &toolServer{})
	tools := tools(t, &Server{URL: url})
	for tool, fails := range map[string]bool{"shout": false, "refuse": true, "fill": true} {
		_, err := do(t, tools, api.Idempotent, tool, "hello")
		require.Equal(t, fails, err != nil, tool)
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	require.Equal(t, "gen_ai.client.operation.duration", all.ScopeMetrics[0].Metrics[0].Name)
	calls := map[string]uint64{}
	for _, point := range all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Histogram[float64]).DataPoints {
		tool, _ := point.Attributes.Value("gen_ai.tool.name")
		wrong, _ := point.Attributes.Value("error.type")
		calls[tool.AsString()+" "+wrong.AsString()] = point.Count
	}
	require.Equal(t, map[string]uint64{"shout ": 1, "refuse " + ErrorTypeTool: 1, "fill _OTHER": 1}, calls)
}
