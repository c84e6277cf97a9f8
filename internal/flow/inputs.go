package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"mainstay.dev/mainstay/internal/job"
	"mainstay.dev/sdk/spelling"
)

// CheckInputs checks inputs of a run against the schema of a definition, and fills in the schema's defaults.
func CheckInputs(ctx context.Context, schema, inputs json.RawMessage) (filled json.RawMessage, err error) {
	compiled, parts, err := compileSchema(schema)
	if err != nil || compiled == nil {
		return inputs, schemaError(err)
	}
	value, err := decodeForSchema(inputs)
	if err != nil {
		return nil, err
	}
	d := defaults{left: job.MaxInputsBytes}
	if root := defaultOf(compiled); root != nil && len(inputs) == 0 {
		value = d.copy(root)
	}
	if value, err = d.fill(compiled, value); err != nil {
		return nil, err
	}
	if err := validateValue(ctx, compiled, parts, value); err != nil {
		return nil, schemaError(err)
	}
	if d.filled {
		inputs, err = json.Marshal(value)
	}
	return inputs, err
}

// defaults puts the defaults of a schema into a value: those of properties and of what $ref and allOf name, in objects
// that are there.
type defaults struct {
	filled bool
	left   int // bytes that they may still have
}

var errLargeDefaults = fmt.Errorf("have more than %d KiB with the defaults of their schema", job.MaxInputsBytes>>10)

func (d *defaults) fill(s *jsonschema.Schema, value any) (any, error) {
	for _, other := range alsoOf(s) {
		if _, err := d.fill(other, value); err != nil {
			return nil, err
		}
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			of := s.Properties[name]
			if _, given := v[name]; !given {
				standard := defaultOf(of)
				if standard == nil {
					continue
				}
				if v[name] = d.copy(standard); d.left < 0 {
					return nil, errLargeDefaults
				}
			}
			if _, err := d.fill(of, v[name]); err != nil {
				return nil, err
			}
		}
	case []any:
		items := s.Items2020
		if items == nil {
			items, _ = s.Items.(*jsonschema.Schema)
		}
		for i := 0; items != nil && i < len(v); i++ {
			if _, err := d.fill(items, v[i]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// copy is a default to fill in: objects get those of their own.
func (d *defaults) copy(standard *any) any {
	text, err := json.Marshal(*standard)
	d.left -= len(text)
	if d.filled = true; err != nil || d.left < 0 {
		return nil
	}
	value, _ := decodeForSchema(text) // it was read from a schema
	return value
}

// alsoOf are the schemas that hold beside one, wherever it does.
func alsoOf(s *jsonschema.Schema) []*jsonschema.Schema {
	if s.Ref == nil {
		return s.AllOf
	}
	return append([]*jsonschema.Schema{s.Ref}, s.AllOf...)
}

// defaultOf is the default of a schema; nil: it has none.
func defaultOf(s *jsonschema.Schema) *any {
	if s.Default != nil {
		return s.Default
	}
	for _, other := range alsoOf(s) {
		if standard := defaultOf(other); standard != nil {
			return standard
		}
	}
	return nil
}

// checkDefaults checks that defaults are what their schema asks for.
func checkDefaults(ctx context.Context, s *jsonschema.Schema, parts int, at string) error {
	if s.Default != nil {
		if err := validateValue(ctx, s, parts, *s.Default); err != nil {
			return fmt.Errorf("the default of %s does not fit: %w", at, schemaError(err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if err := checkDefaults(ctx, s.Properties[name], parts, at+"."+name); err != nil {
			return err
		}
	}
	return nil
}

// GivenInputs makes inputs of texts by name, as a command line has them. A text that is JSON counts as that, unless the
// schema takes only the text itself.
func GivenInputs(schema json.RawMessage, given map[string]string) (json.RawMessage, error) {
	compiled, parts, err := compileSchema(schema)
	if err != nil {
		compiled = nil // whoever takes the inputs says what is wrong
	}
	inputs := map[string]json.RawMessage{}
	for name, text := range given {
		if !utf8.ValidString(text) {
			return nil, fmt.Errorf("%s is not UTF-8 text: encode it, as with base64", name)
		}
		if of := propertyOf(compiled, name); of == nil {
			if near := spelling.Nearest(name, propertiesOf(compiled)); near != "" {
				return nil, fmt.Errorf("the job has no input %s: did you mean %s?", name, near)
			}
		}
		quoted, err := json.Marshal(text)
		if err != nil {
			return nil, err
		}
		if inputs[name] = quoted; json.Valid([]byte(text)) &&
			!onlyText(propertyOf(compiled, name), parts, text, quoted) {
			inputs[name] = json.RawMessage(text)
		}
	}
	return json.Marshal(inputs)
}

// propertyOf is the schema of a property; nil: there is none.
func propertyOf(s *jsonschema.Schema, name string) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	if of := s.Properties[name]; of != nil {
		return of
	}
	for _, other := range alsoOf(s) {
		if of := propertyOf(other, name); of != nil {
			return of
		}
	}
	return nil
}

// propertiesOf are the names of the properties that a schema names, in order.
func propertiesOf(s *jsonschema.Schema) []string {
	if s == nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(s.Properties))
	for _, other := range alsoOf(s) {
		names = append(names, propertiesOf(other)...)
	}
	return names
}

// onlyText is whether a schema takes a text itself, and not the JSON that it is.
func onlyText(s *jsonschema.Schema, parts int, text string, quoted []byte) bool {
	if s == nil {
		return false
	}
	check := func(data []byte) error {
		value, err := decodeForSchema(data)
		if err == nil {
			err = validateValue(context.Background(), s, parts, value)
		}
		return err
	}
	switch err := check([]byte(text)); {
	case err == nil:
		return false
	case check(quoted) == nil:
		return true
	default:
		var wrong *jsonschema.ValidationError
		for errors.As(err, &wrong) && len(wrong.Causes) > 0 {
			err = wrong.Causes[0]
		}
		if wrong == nil {
			return false
		}
		k, isType := wrong.ErrorKind.(*kind.Type)
		return isType && slices.Contains(k.Want, "string")
	}
}
