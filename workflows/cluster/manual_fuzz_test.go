package cluster_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// FuzzManualFailoverSignal sends what a person may send with temporal workflow signal. Nothing of it may harm the
// cluster.
func FuzzManualFailoverSignal(f *testing.F) {
	for _, seed := range []string{`{"agent_id":"a","target_agent_id":"b","reason":"disk"}`, `{"agent_id":"nobody"}`,
		`{"agent_id":7}`, `{"agent_id":""}`,
		`{}`, `null`, `7`, `"a"`, `[]`, `{"agent_id":"a","target_agent_id":["b"]}`, `{"AGENT_ID":"a","agent_id":"../b"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		if !json.Valid([]byte(payload)) {
			t.Skip("the sender's own tool refuses it")
		}
		run := newCluster(t)
		run.at(time.Second, func() { run.update(contract.JoinUpdate.Name, joins("h1", "a", "b")) })
		run.at(2*time.Second, func() {
			run.SignalWorkflow(contract.ManualFailoverSignal.Name,
				json.RawMessage(payload))
		})
		run.at(20*time.Second, func() { require.Len(t, run.view(t).Members, 2, "the cluster goes on") })
		run.deleteAt(30 * time.Second)
		run.start(api.ClusterConfig{})
		require.NoError(t, run.GetWorkflowError())
		require.LessOrEqual(t, len(run.failovers), 1)
	})
}
