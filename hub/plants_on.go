//go:build plant

package hub

import "os"

// planted is the name of the bug that this process has.
var planted = os.Getenv("MAINSTAY_PLANT")

var (
	plantForgedToken     = planted == "forged-token"
	plantEarlyAnswer     = planted == "early-answer"
	plantStaleAccepted   = planted == "stale-accepted"
	plantLeaseIgnored    = planted == "hub-ignores-lease"
	plantReattachDropped = planted == "reattach-dropped"
	plantDrainIgnores    = planted == "drain-ignores-work"
	plantCordonIgnored   = planted == "cordon-ignored"
)
