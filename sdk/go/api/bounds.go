package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Bounds limit a number or a duration that somebody writes. The tags of its field give them: minimum, exclusiveMinimum
// and maximum of a number, least and most of a duration. A duration without least must be above zero.
//
// Zero stands for a field left out, so where it is no value of its own it is refused as soon as somebody writes it.
type Bounds struct {
	duration, whole, optional bool
	least, above, most        string // as the tags have them; empty: none
}

// BoundsOf are the bounds of a field; false: its type has none.
func BoundsOf(f reflect.StructField) (Bounds, bool) {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	b := Bounds{duration: t == reflect.TypeFor[Duration](), optional: isOptional(f)}
	if b.duration {
		b.least, b.most = f.Tag.Get("least"), f.Tag.Get("most")
		if b.least == "" {
			b.above = "0s"
		}
		return b, true
	}
	switch t {
	case reflect.TypeFor[int](), reflect.TypeFor[int64]():
		b.whole = true
	case reflect.TypeFor[float64]():
	default:
		return b, false
	}
	b.least, b.above, b.most = f.Tag.Get("minimum"), f.Tag.Get("exclusiveMinimum"), f.Tag.Get("maximum")
	return b, true
}

// isOptional reports whether a field can be left out. Of a configuration, all can.
func isOptional(f reflect.StructField) bool {
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return options != "" || f.Tag.Get("json") == ""
}

// TakesZero reports whether zero is a value.
func (b Bounds) TakesZero() bool { return b.holds(0) }

// Check checks a value from JSON: text, a number, or neither. Its error does not repeat it.
func (b Bounds) Check(value any) error {
	n, ok := b.read(value)
	switch {
	case !ok && b.duration:
		return ErrDuration
	case !ok && b.whole:
		return errors.New("must be a whole number" + b.span())
	case !ok:
		return errors.New("must be a number" + b.span())
	case b.holds(n):
		return nil
	case n <= 0 && b.optional:
		return fmt.Errorf("must be%s; leave it out for the default", b.span())
	}
	return errors.New("must be" + b.span())
}

func (b Bounds) read(value any) (n float64, ok bool) {
	switch v := value.(type) {
	case string:
		d, err := ParseDuration(v)
		return float64(d), b.duration && err == nil
	case float64:
		n = v
	case json.Number:
		var err error
		if n, err = v.Float64(); err != nil && !math.IsInf(n, 0) {
			return 0, false
		}
	default:
		return 0, false
	}
	return n, !b.duration && !math.IsNaN(n) && (!b.whole || math.IsInf(n, 0) || n == math.Trunc(n))
}

func (b Bounds) holds(n float64) bool {
	return (b.least == "" || n >= b.bound(b.least)) && (b.above == "" || n > b.bound(b.above)) &&
		(b.most == "" || n <= b.bound(b.most))
}

// bound is what a tag says.
func (b Bounds) bound(tag string) float64 {
	if b.duration {
		d, err := ParseDuration(tag)
		if err != nil {
			panic("the tag of a duration: " + tag) //nolint:forbidigo // a mistake in this program, which any use finds
		}
		return float64(d)
	}
	n, err := strconv.ParseFloat(tag, 64)
	if err != nil {
		panic("the tag of a number: " + tag) //nolint:forbidigo // as above
	}
	return n
}

// span is the bounds in words, behind "must be".
func (b Bounds) span() string {
	switch {
	case b.least != "" && b.most != "":
		return " between " + b.least + " and " + b.most
	case b.above != "" && b.most != "":
		return " above " + b.above + " and at most " + b.most
	case b.least != "":
		return " at least " + b.least
	case b.above != "":
		return " above " + b.above
	case b.most != "":
		return " at most " + b.most
	}
	return ""
}

// Within holds the numbers and durations of a struct, and of the structs in it, to their bounds. Zero passes: it was
// left out. Its error is a FieldError, whose field begins with at.
func Within(at string, value any) error { return within(at, reflect.ValueOf(value)) }

func within(at string, v reflect.Value) error {
	for v.Kind() == reflect.Pointer {
		if v = v.Elem(); !v.IsValid() {
			return nil
		}
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := fieldName(f)
		switch b, bounded := BoundsOf(f); {
		case bounded:
			n, given := numberIn(v.Field(i))
			if given && !b.holds(n) {
				return &FieldError{at + name, errors.New("must be" + b.span())}
			}
		case f.IsExported() && isStruct(f.Type):
			inner := at
			if name != "" {
				inner += name + "."
			}
			if err := within(inner, v.Field(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fieldName is a field's name where people write it; empty for embedded fields.
func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

// numberIn is a number or a duration, and whether it was given.
func numberIn(v reflect.Value) (n float64, given bool) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return 0, false
		}
		v, given = v.Elem(), true
	}
	if v.Kind() == reflect.Float64 {
		n = v.Float()
	} else {
		n = float64(v.Int())
	}
	return n, given || n != 0
}

// CheckGiven checks JSON text that is to be read into t against the bounds of t's fields. In the text, zero differs
// from a field left out. Text that is no JSON, or of another form, is for its reader to refuse.
func CheckGiven(text json.RawMessage, t reflect.Type) error { return checkGiven("", text, t) }

func checkGiven(at string, text json.RawMessage, t reflect.Type) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		var members map[string]json.RawMessage
		if json.Unmarshal(text, &members) != nil {
			return nil //nolint:nilerr // whoever decodes it says so
		}
		for _, f := range reflect.VisibleFields(t) {
			member, given := members[fieldName(f)]
			if !given || f.Anonymous {
				continue
			}
			name := at + fieldName(f)
			if b, bounded := BoundsOf(f); bounded {
				if err := b.checkText(member); err != nil {
					return &FieldError{name, err}
				}
			} else if err := checkGiven(name+".", member, f.Type); err != nil {
				return err
			}
		}
	case reflect.Slice:
		var elements []json.RawMessage
		if t == reflect.TypeFor[json.RawMessage]() || json.Unmarshal(text, &elements) != nil {
			return nil //nolint:nilerr // whoever decodes it says so
		}
		for i, element := range elements {
			if err := checkGiven(fmt.Sprintf("%s[%d].", strings.TrimSuffix(at, "."), i), element,
				t.Elem()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b Bounds) checkText(text json.RawMessage) error {
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil //nolint:nilerr // not JSON, which its reader says
	}
	return b.Check(value)
}

// FieldAt finds a field of a type by a location such as retry.max_attempts or devices[0].count.
func FieldAt(t reflect.Type, path string) (field reflect.StructField, found bool) {
	for part := range strings.SplitSeq(path, ".") {
		for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) {
			t = t.Elem()
		}
		name, _, _ := strings.Cut(part, "[")
		switch {
		case t == nil:
			return field, false
		case t.Kind() == reflect.Map:
			t, found = t.Elem(), false
			continue
		case t.Kind() != reflect.Struct:
			return field, false
		}
		found = false
		for _, f := range reflect.VisibleFields(t) {
			if fieldName(f) == name && !f.Anonymous {
				field, found = f, true
			}
		}
		if !found {
			return field, false
		}
		t = field.Type
	}
	return field, found
}
