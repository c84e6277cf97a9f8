//go:build !plant

package proctree

// Planted bugs, which testsuite/chaos must catch. They exist only in programs built with -tags plant; see plants_on.go.
const (
	plantTreeLeft     = false // the guard ends without killing the tree
	plantLeaseIgnored = false // the tree lives on when its lease is over
)
