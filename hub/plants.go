//go:build !plant

package hub

// Planted bugs, which testsuite/chaos must catch. They exist only in programs built with -tags plant; see plants_on.go.
const (
	plantForgedToken     = false // a token counts whoever made it
	plantEarlyAnswer     = false // a result is answered before Temporal has it
	plantStaleAccepted   = false // a result that no longer counts is answered as accepted
	plantLeaseIgnored    = false // a lost agent is taken to have stopped at once
	plantReattachDropped = false // a hub that restarts drops what agents still run
	plantDrainIgnores    = false // a drain takes an agent for idle whatever it has
	plantCordonIgnored   = false // an agent in maintenance is given work
)
