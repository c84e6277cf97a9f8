package app

import (
	"encoding/json"
	"errors"
	"reflect"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mainstay.dev/sdk/api"
)

// number refuses values of a flag that are outside its bounds. Commands read zero as a flag that was left out, so the
// usual bounds refuse a written zero, except of flags that MayBeZero marks.
type number struct {
	pflag.Value
	bounds api.Bounds
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
	if err := n.bounds.Check(value); errors.Is(err, api.ErrDuration) {
		return err
	} else if err != nil {
		return boundsError{err}
	}
	if d, err := api.ParseDuration(text); duration && err == nil {
		text = d.String() // pflag does not know days
	}
	return n.Value.Set(text)
}

// usual are the bounds of flags that have none of their own, by their type, and of those that may be zero.
type usual struct {
	Int       int          `json:"int,omitempty" minimum:"1"`
	Float     float64      `json:"float64,omitempty" exclusiveMinimum:"0"`
	Duration  api.Duration `json:"duration,omitempty"`
	Int0      int          `json:"int0,omitempty" minimum:"0"`
	Float0    float64      `json:"float640,omitempty" minimum:"0"`
	Duration0 api.Duration `json:"duration0,omitempty" least:"0s"`
}

// Bounded holds flags to the bounds of fields of T, which are written like retry.max_attempts.
func Bounded[T any](flags *pflag.FlagSet, fieldOf map[string]string) {
	for name, path := range fieldOf {
		flag := flags.Lookup(name)
		f, found := api.FieldAt(reflect.TypeFor[T](), path)
		if flag == nil || !found {
			panic("no flag or no field: " + name + ", " + path) //nolint:forbidigo // a mistake that every start finds
		}
		if b, bounded := api.BoundsOf(f); bounded {
			flag.Value = &number{flag.Value, b}
		}
	}
}

// mayBeZero marks flags that may be zero.
const mayBeZero = "may be zero"

// MayBeZero says that zero is a value of flags, which may not be negative.
func MayBeZero(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, mayBeZero, nil) // it is there
	}
}

// boundNumbers gives the usual bounds to a command's numbers and durations that have none yet, and hides defaults of
// zero in help, because they stand for no default.
func boundNumbers(c *cobra.Command) {
	bound := func(flag *pflag.Flag) {
		kind := flag.Value.Type()
		if _, zero := flag.Annotations[mayBeZero]; zero {
			kind += "0"
		}
		f, known := api.FieldAt(reflect.TypeFor[usual](), kind)
		if _, done := flag.Value.(*number); !done && known {
			b, _ := api.BoundsOf(f)
			flag.Value = &number{flag.Value, b}
		}
		if known && flag.DefValue == "0s" {
			flag.DefValue = ""
		}
	}
	c.Flags().VisitAll(bound)
	c.PersistentFlags().VisitAll(bound)
}
