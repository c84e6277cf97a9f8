//go:build plant

package proctree

import "os"

var plantTreeLeft = os.Getenv("MAINSTAY_PLANT") == "tree-left"
