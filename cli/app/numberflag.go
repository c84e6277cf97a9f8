package app

import (
	"encoding/json"
	"errors"
	"reflect"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/mainstay/fleet"
)

// number is a flag's value that is held to bounds. Its zero stands for a flag that was left out, so that a zero that
// somebody writes must be a value of its own.
type number struct {
	pflag.Value
	bounds fleet.Bounds
}

// boundsError says what a flag's value must be.
type boundsError struct{ error }

// Set implements pflag.Value.
func (n *number) Set(text string) error {
	var value any = text
	duration := n.Type() == "duration"
	if !duration {
		value = json.Number(text)
	}
	if err := n.bounds.Check(value); err != nil && !errors.Is(err, fleet.ErrDuration) {
		return boundsError{err}
	}
	if d, err := fleet.ParseDuration(text); duration && err == nil {
		text = d.String() // days are ours
	}
	return n.Value.Set(text)
}

// usual are the bounds of flags that have none of their own.
type usual struct {
	Count    int            `json:"count,omitempty" minimum:"1"`
	Share    float64        `json:"share,omitempty" exclusiveMinimum:"0"`
	Duration fleet.Duration `json:"duration,omitempty"`
}

var usualFields = map[string]string{"int": "count", "float64": "share", "duration": "duration"}

// Bounded holds flags to the bounds of fields of T, which are written like retry.max_attempts.
func Bounded[T any](flags *pflag.FlagSet, fieldOf map[string]string) {
	for name, path := range fieldOf {
		flag := flags.Lookup(name)
		f, found := fleet.FieldAt(reflect.TypeFor[T](), path)
		if flag == nil || !found {
			panic("no flag or no field: " + name + ", " + path) //nolint:forbidigo // a mistake that every start finds
		}
		if b, bounded := fleet.BoundsOf(f); bounded {
			flag.Value = &number{flag.Value, b}
		}
	}
}

// mayBeZero marks flags of which zero is a value.
const mayBeZero = "may be zero"

// MayBeZero says that zero is a value of flags, which may not be negative.
func MayBeZero(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, mayBeZero, nil) // it is there
	}
}

// boundNumbers holds the numbers and durations of a command that have no bounds yet to the usual ones.
func boundNumbers(c *cobra.Command) {
	bound := func(flag *pflag.Flag) {
		_, zero := flag.Annotations[mayBeZero]
		_, done := flag.Value.(*number)
		path, known := usualFields[flag.Value.Type()]
		if zero || done || !known {
			return
		}
		f, _ := fleet.FieldAt(reflect.TypeFor[usual](), path)
		b, _ := fleet.BoundsOf(f)
		flag.Value = &number{flag.Value, b}
	}
	c.Flags().VisitAll(bound)
	c.PersistentFlags().VisitAll(bound)
}
