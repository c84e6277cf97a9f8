package hub

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// An agent that vanishes takes what it has with it: it is not idle.
func TestWhatADrainedAgentTakesWithIt(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, b *bench) {
		a := b.register("a", 2)
		done := a.give(aTask("t1"))
		in := contract.AwaitIdleInput{AgentID: "a", Instance: a.session().instance, Epoch: a.session().epoch}
		var left []cluster.HeldAttempt
		look := func() (err error) {
			var idle bool
			left, idle, err = b.activities.whatIsLeft(in, left)
			require.False(t, idle)
			return err
		}
		require.NoError(t, look())
		require.Len(t, left, 1)
		require.NoError(t, a.report(done, api.AttemptCompleted))
		a.give(aTask("t2"))
		require.NoError(t, look())
		a.hangUp()
		var gone *temporal.ApplicationError
		for !errors.As(look(), &gone) {
			b.pass(idleLook)
		}
		var lost []cluster.HeldAttempt
		require.NoError(t, gone.Details(&lost))
		require.Equal(t, []cluster.HeldAttempt{{TaskID: "t2", Attempt: 1}}, lost)
	})
}
