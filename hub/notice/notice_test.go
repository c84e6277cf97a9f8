package notice

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/hub/part"
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
		n := New(run, part.Hub{Client: unreachable{}, Logger: zap.New(logged)},
			func(string) *fleet.BrakeHold { return nil }, func(string) {})
		n.Notify("c", fleet.Transition{})
		synctest.Wait()
		stop()
		n.Wait(t.Context())
		require.Zero(t, logs.Len())
	})
}
