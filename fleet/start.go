package fleet

import (
	"errors"
	"time"
)

// ValidateStartAt checks when a task may first be delivered: at any time in the past, which means at once, or at most a
// year ahead. The zero time passes.
func ValidateStartAt(at, now time.Time) error {
	if at.After(now.AddDate(1, 0, 0)) {
		return errors.New("start_at must be at most 1 year ahead")
	}
	return nil
}

// StartsAt says in words when a task begins that must wait for its time.
func StartsAt(at time.Time) string { return "starts at " + at.UTC().Format(time.RFC3339) }
