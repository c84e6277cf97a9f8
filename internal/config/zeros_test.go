package config

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/zeros"
)

// TestZeroIsNeverTheDefault: these alone take zero. Any other refuses it: give a new one a minimum above zero (a
// duration: least), or name it here.
func TestZeroIsNeverTheDefault(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, []string{
		"Dev.agents",
		"Membership.minimum_agents", "Membership.desired_agents", // not watched
		"RolloutPolicy.canary",
		"ScaleUpRule.queue_threshold", "ScaleDownRule.queue_threshold",
		"Security.rate_limit", "Security.rate_burst", // no limit
		"TaskQueue.stop_grace",       // killed at once
		"TaskQueue.disconnect_grace", // lost at once
	}, zeros.Of(reflect.TypeFor[Config](), "json"))
}
