//go:build !plant

package agent

// Planted bugs, which testsuite/chaos must catch. They exist only in programs built with -tags plant; see plants_on.go.
const (
	plantLeaseIgnored = false // fenced work goes on after the lease
	plantDuplicateRun = false // an assignment that comes twice runs twice
)
