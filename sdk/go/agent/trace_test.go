//go:build unix

package agent_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// A command gets the trace of its task in its environment, even if this program records none; the task's own variables
// win.
func TestCommandsSeeTheTrace(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for name, c := range map[string]struct {
		parent, state string
		env           map[string]string
		want          string
	}{
		"a trace":       {parent, "", nil, parent + "\n"},
		"with a state":  {parent, "a=b", nil, parent + "a=b\n"},
		"the task's":    {parent, "", map[string]string{"TRACEPARENT": "mine"}, "mine\n"},
		"no trace":      {"", "", nil, "\n"},
		"a broken one":  {"00-zz", "", nil, "\n"},
		"no trace, yet": {"", "a=b", nil, "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			payload, err := json.Marshal(agent.ExecPayload{Command: []string{"sh", "-c",
				`echo "$TRACEPARENT$TRACESTATE"`}, Env: c.env})
			require.NoError(t, err)
			hub := agenttest.NewHub(t, agenttest.Options{})
			start(t, hub, nil, map[string]agent.Handler{agent.ExecType: agent.ExecHandler()})
			hub.WaitRegistered(1)
			hub.Assign(protocol.Assignment{TaskID: "t1", Type: agent.ExecType, Payload: payload, TraceParent: c.parent,
				TraceState: c.state})
			result := hub.WaitResult("t1")
			require.Equal(t, api.AttemptCompleted, result.Outcome, result.Error)
			var out agent.ExecResult
			require.NoError(t, json.Unmarshal(result.Output, &out))
			require.Equal(t, c.want, out.Stdout)
		})
	}
}
