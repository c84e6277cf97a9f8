//go:build plant

package agent

import "os"

// planted is the name of the bug that this process has.
var planted = os.Getenv("MAINSTAY_PLANT")

var (
	plantLeaseIgnored = planted == "agent-ignores-lease"
	plantDuplicateRun = planted == "duplicate-run"
)
