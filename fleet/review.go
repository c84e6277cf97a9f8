package fleet

import "fmt"

// ReviewDecision is what a person decides about a task in review.
type ReviewDecision string

// The decisions.
const (
	ReviewRerun     ReviewDecision = "rerun"     // it is safe: deliver it again
	ReviewCompleted ReviewDecision = "completed" // it was done; take the given result
	ReviewFailed    ReviewDecision = "failed"    // give it up
)

// Validate checks the decision.
func (d ReviewDecision) Validate() error {
	switch d {
	case ReviewRerun, ReviewCompleted, ReviewFailed:
		return nil
	}
	return fmt.Errorf("decision must be rerun, completed or failed")
}
