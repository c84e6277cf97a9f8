package service

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/contract"
	"mainstay.dev/mainstay/fleet"
)

// Users of another orchestrator found instances that were not healthy: its servers did not know.
func TestOnlyHealthyInstancesAreFoundByDefault(t *testing.T) {
	t.Parallel()
	for _, health := range []fleet.InstanceHealth{fleet.InstanceStarting, fleet.InstancePassing, fleet.InstanceFailing,
		""} {
		f := &contract.FoundInstance{Checked: health,
			InstanceOf: fleet.InstanceOf{Service: &fleet.Offer{Name: "web", Tags: []string{"eu"}}}}
		passes := health == fleet.InstancePassing
		require.Equal(t, passes, (&getInput{}).wants(f), "%q", health)
		require.Equal(t, passes, (&getInput{Health: "passing"}).wants(f), "%q", health)
		require.Equal(t, passes, (&getInput{Tag: "eu"}).wants(f), "%q", health)
		require.Equal(t, passes, (&getInput{Role: "stable"}).wants(f), "%q", health)
		require.True(t, (&getInput{Health: "any"}).wants(f), "%q", health)
		require.False(t, (&getInput{Health: "any", Tag: "us"}).wants(f), "%q", health)
	}
}
