package service

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
)

// Users of another orchestrator found instances that were not healthy: its servers did not know.
func TestOnlyHealthyInstancesAreFoundByDefault(t *testing.T) {
	t.Parallel()
	for _, health := range []api.InstanceHealth{api.InstanceStarting, api.InstancePassing, api.InstanceFailing,
		""} {
		f := &contract.FoundInstance{Checked: health,
			InstanceOf: api.InstanceOf{Service: &api.ServiceOffer{Name: "web", Tags: []string{"eu"}}}}
		passes := health == api.InstancePassing
		require.Equal(t, passes, (&getInput{}).wants(f), "%q", health)
		require.Equal(t, passes, (&getInput{Health: "passing"}).wants(f), "%q", health)
		require.Equal(t, passes, (&getInput{Tag: "eu"}).wants(f), "%q", health)
		require.Equal(t, passes, (&getInput{Role: "stable"}).wants(f), "%q", health)
		require.True(t, (&getInput{Health: "any"}).wants(f), "%q", health)
		require.False(t, (&getInput{Health: "any", Tag: "us"}).wants(f), "%q", health)
	}
}
