//go:build plant

package workflows

import "os"

// planted is the name of the bug that this process has.
var planted = os.Getenv("MAINSTAY_PLANT")

var (
	plantRunAgain          = planted == "run-again"
	plantDeadLetterDropped = planted == "dead-letter-dropped"
	plantRoleLeaseIgnored  = planted == "role-lease-ignored"
	plantEpochReused       = planted == "epoch-reused"
)
