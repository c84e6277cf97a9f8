package api

import (
	"fmt"
)

// Overlap is what a schedule does when its next time comes before the previous task has ended.
type Overlap string

// The overlaps.
const (
	OverlapSkip        Overlap = "skip"         // make no task
	OverlapBufferOne   Overlap = "buffer_one"   // make it when the previous one ends; at most one waits so
	OverlapAllowAll    Overlap = "allow_all"    // make it at once
	OverlapCancelOther Overlap = "cancel_other" // cancel the previous one, then make it
)

// Bounds and defaults of schedules.
const (
	// MaxScheduleName leaves room for the time in the ids of a schedule's tasks.
	MaxScheduleName = MaxIDLength - len("@20060102t150405z")
)

// FieldError is a mistake in one field of a request, with the field's JSON name. It does not repeat the value.
type FieldError struct {
	Field string
	Err   error
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + " " + e.Err.Error() }

func (e *FieldError) Unwrap() error { return e.Err }

// WrongField is a FieldError about a field, with the mistake in words.
func WrongField(field, format string, args ...any) error {
	return &FieldError{field, fmt.Errorf(format, args...)}
}

// ValidateScheduleName checks that name, without its tenant, is a slug that leaves room for the time in task ids.
func ValidateScheduleName(name string) error {
	if err := ValidateID("name", name); err != nil {
		return err
	}
	if len(name) > MaxScheduleName {
		return fmt.Errorf("%w: name may be at most %d characters, so that the ids of its tasks fit", ErrInvalidID,
			MaxScheduleName)
	}
	return nil
}
