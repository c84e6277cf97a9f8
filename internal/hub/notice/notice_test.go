package notice

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/hub/part"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
)

// unreachable is a Temporal that answers no signal.
type unreachable struct{ client.Client }

func (unreachable) SignalWorkflow(ctx context.Context, _, _, _ string, _ any) error {
	<-ctx.Done()
	return errors.Join(errors.New("no answer"), ctx.Err())
}

func TestASignalThatEndsWithTheHubIsNoWarning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logged, logs := observer.New(zap.WarnLevel)
		run, stop := context.WithCancel(t.Context())
		n := New(run, part.Hub{Hub: store.Store{Client: unreachable{}}.Hub("h", "process"), Logger: zap.New(logged)},
			func(string) *cluster.BrakeHold { return nil }, func(string) {})
		n.Notify("c", cluster.Transition{})
		synctest.Wait()
		stop()
		n.Wait(t.Context())
		require.Zero(t, logs.Len())
	})
}

// Whatever agents say of their ends and their health, a cluster can be told.
func TestChangesFitIntoASignal(t *testing.T) {
	t.Parallel()
	note := strings.Repeat("\U0001F642", 512)
	for name, c := range map[string]cluster.Transition{
		"deaths": {Status: api.AgentOffline, Evidence: api.EvidenceProof, Reason: note},
		"health": {Health: &cluster.MemberHealth{Level: api.HealthCritical, Why: note}},
	} {
		c.AgentID, c.Instance = strings.Repeat("a", 63), strings.Repeat("b", 64)
		all := slices.Repeat([]cluster.Transition{c}, 5000)
		data, err := json.Marshal(contract.MembersChanged{Hub: "h", Changes: all[:fits(all)]})
		require.NoError(t, err)
		require.Less(t, len(data), 2<<20-64<<10, name)
		require.Greater(t, len(data), 128<<10, name)
	}
}
