package task_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/task"
	"mainstay.dev/sdk/api"
)

// A task with routes waits in a lane for each of their providers.
func TestLanesOfRoutes(t *testing.T) {
	t.Parallel()
	spec := api.TaskSpec{Type: "model", Cluster: "c", RequiredCapabilities: []string{"eu"}, Routes: []api.Route{
		{Provider: "a", Model: "small"}, {Provider: "b", Model: "m"}, {Provider: "a", Model: "large"}}}
	require.NoError(t, spec.Validate())
	var lanes []string
	for _, needs := range task.LaneNeedsOf(&spec, false) {
		lanes = append(lanes, task.LaneFor(&needs))
	}
	require.Equal(t, []string{"cap/eu+model.a", "cap/eu+model.b"}, lanes)
	require.Equal(t, lanes[0], task.LaneOf(&spec, 0, false))
	forB := spec.ForRoute(spec.Routes[1])
	require.Equal(t, lanes[1], task.LaneOf(&forB, 0, false))
	require.Equal(t, "b", forB.Provider)
	require.Equal(t, []string{"eu"}, spec.RequiredCapabilities, "the task is as it was")

	for want, routes := range map[string][]api.Route{
		"at most 8 routes":    make([]api.Route, 9),
		"routes: provider":    {{Provider: "A b", Model: "m"}},
		"1 to 128 characters": {{Provider: "a", Model: strings.Repeat("m", 129)}},
		"be no less than 0":   {{Provider: "a", Model: "m", Window: -1}},
	} {
		spec.Routes = routes
		require.ErrorContains(t, spec.Validate(), want)
	}

	tool := api.TaskSpec{RequiredCapabilities: []string{"eu", api.ToolCapability("desk")}}
	task.PreferOpen(&tool)
	require.Equal(t, "mcp.desk", tool.Provider, "agents with an open session are preferred")
	tool.Provider = "other"
	task.PreferOpen(&tool)
	require.Equal(t, "other", tool.Provider)
}
