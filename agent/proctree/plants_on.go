//go:build plant

package proctree

import "os"

// planted is the name of the bug that this process has.
var planted = os.Getenv("MAINSTAY_PLANT")

var (
	plantTreeLeft     = planted == "tree-left"
	plantLeaseIgnored = planted == "guard-ignores-lease"
)
