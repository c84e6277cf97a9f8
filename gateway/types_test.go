package gateway_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// TestSubmissionsOfATypeThatNobodyHandlesReadTheClusterRarely has many of them within a second, as a backlog does.
func TestSubmissionsOfATypeThatNobodyHandlesReadTheClusterRarely(t *testing.T) {
	t.Parallel()
	f := newFake()
	c := f.withCluster(api.ClusterConfig{Name: "web"})
	types, err := contract.Payloads.ToPayload(cluster.LaneTypes{Shared: cluster.TypeSet{List: []string{"echo"}}})
	require.NoError(t, err)
	c.info.Memo = &commonpb.Memo{Fields: map[string]*commonpb.Payload{contract.MemoTypes: types}}
	h := serve(t, f)
	const tasks = 100
	for range tasks {
		r := do(h, http.MethodPost, tasksPath, `{"type":"sing","cluster":"web"}`)
		require.Equal(t, http.StatusAccepted, r.Code, r.Body)
	}
	require.Less(t, f.describes, tasks/2)
	require.Len(t, f.updates, 1, "the lane is opened once")
	for _, e := range f.executions {
		if in, ok := e.input.(contract.TaskInput); ok {
			require.Equal(t, "lane/web/type/sing", in.Lane)
		}
	}
}
