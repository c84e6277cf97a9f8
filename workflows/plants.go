//go:build !plant

package workflows

import (
	"time"

	"mainstay.dev/mainstay/fleet"
)

// Planted bugs, which testsuite/chaos must catch. They exist only in programs built with -tags plant; see plants_on.go.
const (
	plantRunAgain          = false // every task is delivered again as if it were idempotent
	plantDeadLetterDropped = false // a dead letter ends the task
	plantRoleLeaseIgnored  = false // a role goes to another at once
	plantEpochReused       = false // epochs start anew with each join
	plantHealingUnchecked  = false // a cluster lets healing do whatever it decided
)

// decideHealing is the fleet's decision, or what a planted bug makes of it.
func decideHealing(c *fleet.HealingCase, now time.Time) []fleet.HealingDecision {
	return fleet.DecideHealing(c, now)
}
