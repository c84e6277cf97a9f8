package task

import (
	"mainstay.dev/sdk/api"
)

// EndOfElement is the end of an element that did not complete, for Redeliver.
func EndOfElement(r *api.ElementResult) AttemptEnd {
	end := AttemptEnd{Outcome: r.Outcome, Begun: true, Final: r.NonRetryable, Reason: r.Error, ErrorType: r.ErrorType}
	if !r.Stuck {
		end.LeaseRemaining = new(api.Duration) // its handler has returned
	}
	return end
}

// Bounds of arrays.
const (
	// MaxItemsBytes bounds the payloads of an array's elements together, as JSON text.
	MaxItemsBytes = 1 << 20
)
