//go:build plant

package workflows

import (
	"os"
	"slices"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// planted is the name of the bug that this process has.
var planted = os.Getenv("MAINSTAY_PLANT")

var (
	plantRunAgain          = planted == "run-again"
	plantDeadLetterDropped = planted == "dead-letter-dropped"
	plantRoleLeaseIgnored  = planted == "role-lease-ignored"
	plantEpochReused       = planted == "epoch-reused"
	plantHealingUnchecked  = planted == "healing-overrides" || planted == "healing-takes-all"
)

// decideHealing is the fleet's decision with the planted bug.
func decideHealing(c *fleet.HealingCase, now time.Time) []fleet.HealingDecision {
	switch planted {
	case "healing-overrides": // what an operator keeps out of service is healing's business too
		for i := range c.Agents {
			c.Agents[i].OutBy = ""
		}
	case "healing-takes-all": // the cluster never has too few
		c.Members, c.Serving, c.Healthy = 1, c.Serving+100, c.Healthy+100
	}
	decisions := fleet.DecideHealing(c, now)
	return slices.DeleteFunc(decisions, func(d fleet.HealingDecision) bool {
		return planted == "healing-blind" && d.Type == fleet.HealDrain || planted == "healing-forgets" && d.Type == fleet.HealRestore
	})
}
