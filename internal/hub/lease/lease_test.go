package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	"google.golang.org/grpc"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/store"
)

// heartbeats takes the first heartbeat of a lease; then another activity holds it.
type heartbeats struct {
	workflowservice.WorkflowServiceClient
	taken int
}

type temporal struct {
	client.Client
	heartbeats heartbeats
}

func (t *temporal) WorkflowService() workflowservice.WorkflowServiceClient { return &t.heartbeats }

func (h *heartbeats) RecordActivityTaskHeartbeat(
	context.Context, *workflowservice.RecordActivityTaskHeartbeatRequest, ...grpc.CallOption,
) (*workflowservice.RecordActivityTaskHeartbeatResponse, error) {
	if h.taken++; h.taken > 1 {
		return nil, serviceerror.NewNotFound("held elsewhere")
	}
	return &workflowservice.RecordActivityTaskHeartbeatResponse{}, nil
}

// TestAgentsRegisterAgain where the clusters may have given them up. Otherwise the hub renews the leases of agents whose
// roles go to others.
func TestAgentsRegisterAgain(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	for name, c := range map[string]struct {
		made, renewed time.Time
		lost          bool
		rejoins       int
	}{
		"first lease":                       {made: ago(time.Second)},
		"first lease, after a loss":         {made: ago(time.Second), lost: true, rejoins: 1},
		"first lease, long after the start": {made: ago(time.Minute), rejoins: 1},
		"renewed in time":                   {made: ago(time.Minute), renewed: ago(lost / 2)},
		"renewed too late":                  {made: ago(time.Minute), renewed: ago(2 * lost), rejoins: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rejoined := 0
			l := New(part.Hub{Hub: store.Store{Client: &temporal{}}.Hub("h", "process")}, func() { rejoined++ })
			l.madeAt, l.renewedAt = c.made, c.renewed
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestActivityEnvironment()
			env.RegisterActivity(l.Hold)
			_, err := env.ExecuteActivity(l.Hold, contract.HoldLeaseInput{Lost: c.lost})
			require.NoError(t, err)
			require.Equal(t, c.rejoins, rejoined)
			require.True(t, l.Fresh(time.Now()))
		})
	}
}
