//go:build !plant

package proctree

// A planted bug, which testsuite/chaos must catch. It exists only in programs built with -tags plant; see plants_on.go.
const plantTreeLeft = false // the guard ends without killing the tree
