package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// jsonFormat reads and writes bodies. Its errors say where the body is wrong and never what stood there.
var jsonFormat = huma.Format{
	Marshal: huma.DefaultJSONFormat.Marshal,
	Unmarshal: func(data []byte, v any) error {
		return describeJSON(data, unmarshal(data, v))
	},
}

// maxRewritten bounds how many numbers of a body are rewritten: for each the body is read once more.
const maxRewritten = 16

// unmarshal is json.Unmarshal that takes a whole number in any form, as JSON Schema does: 2.0 and 2e0 are 2.
func unmarshal(data []byte, v any) error {
	for range maxRewritten {
		kind, wrong := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(data, v))
		if !wrong {
			break
		}
		text, isNumber := strings.CutPrefix(kind.Value, "number ")
		number, err := strconv.ParseFloat(text, 64)
		at := bytes.LastIndex(data[:min(int(kind.Offset)+1, len(data))], []byte(text))
		if whole := strconv.FormatFloat(number, 'f', 0, 64); err == nil && isNumber && number == math.Trunc(number) &&
			math.Abs(number) <= 1<<53 && at >= 0 && at+len(text) >= int(kind.Offset)-1 && whole != text {
			data = slices.Concat(data[:at], []byte(whole), data[at+len(text):])
			continue
		}
		break
	}
	return json.Unmarshal(data, v)
}

// describeJSON says why a text is not the JSON it should be; nil: it is.
func describeJSON(data []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return fmt.Errorf("not valid JSON at %s", position(data, syntax.Offset))
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("body.%s has a value of the wrong type, or a number that is too large", kind.Field)
	case errors.As(err, &kind):
		return fmt.Errorf("a number that is too large, or a value of the wrong type, ends at %s",
			position(data, kind.Offset))
	case errors.Is(err, api.ErrDuration):
		return api.ErrDuration
	}
	return errors.New("a value cannot be read; check its form against /docs")
}

// position turns an offset (bytes read, so the culprit is the last of them) into a line and a column from 1.
func position(data []byte, offset int64) string {
	before := data[:max(0, min(int(offset), len(data))-1)]
	line := bytes.Count(before, []byte{'\n'}) + 1
	column := len(before) - (bytes.LastIndexByte(before, '\n') + 1) + 1
	return fmt.Sprintf("line %d, column %d", line, column)
}

// describeTypes gives types of fleet, which does not know huma, the schemas that the OpenAPI document shows.
func describeTypes(schemas huma.Registry) {
	schemas.RegisterTypeAlias(reflect.TypeFor[api.Duration](), reflect.TypeFor[durationSchema]())
	schemas.RegisterTypeAlias(reflect.TypeFor[api.Priority](), reflect.TypeFor[prioritySchema]())
	schemas.RegisterTypeAlias(reflect.TypeFor[api.JobDefinition](), reflect.TypeFor[definitionSchema]())
}

// durationSchema describes api.Duration.
type durationSchema struct{}

// Schema implements huma.SchemaProvider.
func (durationSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: positive}
}

// describeDurations allows zero where it is a value of a duration, and documents the bounds of each.
func (s *Server) describeDurations(schemas huma.Registry) {
	for name, schema := range schemas.Map() {
		t := schemas.TypeFromRef("#/components/schemas/" + name)
		if s.described[name] || t == nil || t.Kind() != reflect.Struct {
			continue
		}
		s.described[name] = true
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			property, known := schema.Properties[name]
			if b, bounded := api.BoundsOf(f); known && bounded && property.Type == huma.TypeString && b.TakesZero() {
				property.Pattern = anyDuration
				property.PrecomputeMessages()
			}
		}
	}
}

// bodyType is the type of a request's body; nil: it has none.
func bodyType(ctx huma.Context) reflect.Type {
	body, ok := ctx.(*boundedBody)
	if !ok || body.bounds.root == nil || body.bounds.root.Ref == "" {
		return nil
	}
	return body.bounds.registry.TypeFromRef(body.bounds.root.Ref)
}

// bodyField finds the fields of a request's body by their locations; nil: it has none.
func bodyField(ctx huma.Context) func(location string) (reflect.StructField, bool) {
	t := bodyType(ctx)
	if t == nil {
		return nil
	}
	return func(location string) (reflect.StructField, bool) {
		path, within := strings.CutPrefix(location, "body.")
		if !within {
			return reflect.StructField{}, false
		}
		return api.FieldAt(t, path)
	}
}

// boundedMessage is the message about a count or duration out of bounds, and otherwise if the error is another.
func boundedMessage(f reflect.StructField, value any, otherwise string) string {
	if b, bounded := api.BoundsOf(f); bounded {
		if err := b.Check(value); err != nil {
			return err.Error()
		}
	}
	return otherwise
}

// definitionSchema describes job.Definition, which has a schema of its own.
type definitionSchema struct{}

// Schema implements huma.SchemaProvider.
func (definitionSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true,
		Description: "A job's definition; GET /api/v1/schemas/job describes it."}
}

// prioritySchema describes api.Priority: a number or a name.
type prioritySchema struct{}

// Schema implements huma.SchemaProvider.
func (prioritySchema) Schema(huma.Registry) *huma.Schema {
	var numbers, names []any
	for i, name := range api.PriorityNames() {
		numbers = append(numbers, float64(i+1)) // as encoding/json decodes them
		names = append(names, name)
	}
	return &huma.Schema{Enum: append(numbers, names...), Examples: []any{"high"}}
}

// smallBody is the size in bytes up to which a body is simply read into values for validation: that costs some thirty
// times as much memory.
const smallBody = 64 << 10

// anything stands in a skeleton for a value that no schema speaks of.
const anything = true

// skeleton reads only the parts of a JSON text that validation looks at. Parts that a schema leaves open, such as a
// payload, become a word; and it stops reading an array of objects once the elements have as many mistakes as an answer
// lists. So the memory depends on the mistakes and not on the size of the text. The text has passed its bounds. Errors
// say where the text is not JSON.
func skeleton(registry huma.Registry, schema *huma.Schema, data []byte) (any, error) {
	if len(data) <= smallBody {
		var value any
		err := json.Unmarshal(data, &value)
		if _, tooLarge := errors.AsType[*json.UnmarshalTypeError](err); !tooLarge { // a payload may have any number
			return value, describeJSON(data, err)
		}
	}
	s := &skeletons{registry: registry, decoder: json.NewDecoder(bytes.NewReader(data))}
	s.decoder.UseNumber() // else one that is too large ends the reading, without its place
	value, err := s.value(schema)
	if _, end := s.decoder.Token(); err != nil || !errors.Is(end, io.EOF) {
		exact := json.Unmarshal(data, &ignored{}) // a decoder does not say where
		return nil, describeJSON(data, cmp.Or(exact, err))
	}
	return value, nil
}

// ignored is a value that is not kept.
type ignored struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*ignored) UnmarshalJSON([]byte) error { return nil }

type skeletons struct {
	registry huma.Registry
	decoder  *json.Decoder
	within   bool // an array of objects
	mistakes int  // in it
}

func (s *skeletons) value(schema *huma.Schema) (any, error) {
	schema = follow(s.registry, schema)
	if schema == nil {
		return anything, s.decoder.Decode(&ignored{})
	}
	token, err := s.decoder.Token()
	if err != nil {
		return nil, err
	}
	if number, isNumber := token.(json.Number); isNumber {
		value, _ := strconv.ParseFloat(number.String(), 64) // of one that is too large, infinity
		return value, nil
	}
	switch token {
	case json.Delim('{'):
		return s.object(schema)
	case json.Delim('['):
		return s.array(schema)
	}
	return token, nil
}

func (s *skeletons) object(schema *huma.Schema) (any, error) {
	object := map[string]any{}
	for s.decoder.More() {
		key, err := s.decoder.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		if schema.Type != huma.TypeObject { // which is a mistake, whatever it holds
			if err := s.decoder.Decode(&ignored{}); err != nil {
				return nil, err
			}
			continue
		}
		member := schema.Properties[name]
		if others, ok := schema.AdditionalProperties.(*huma.Schema); ok && member == nil {
			member = others
		}
		if object[name], err = s.value(member); err != nil {
			return nil, err
		}
	}
	_, err := s.decoder.Token() // its end
	return object, err
}

func (s *skeletons) array(schema *huma.Schema) (any, error) {
	items := follow(s.registry, schema.Items)
	outermost := !s.within && items != nil && items.Type == huma.TypeObject
	if outermost {
		s.within, s.mistakes = true, 0
		defer func() { s.within = false }()
	}
	array := []any{}
	for s.decoder.More() {
		if s.mistakes >= maxFields || schema.Type != huma.TypeArray {
			if err := s.decoder.Decode(&ignored{}); err != nil {
				return nil, err
			}
			continue
		}
		element, err := s.value(schema.Items)
		if err != nil {
			return nil, err
		}
		array = append(array, element)
		if outermost {
			result := &huma.ValidateResult{}
			huma.Validate(s.registry, items, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, element, result)
			s.mistakes += len(result.Errors)
		}
	}
	_, err := s.decoder.Token() // its end
	return array, err
}

// ReadJSON reads JSON text into a value after holding it to its schema: a part of a body that the body's own schema
// leaves open. Its errors are problems to answer with.
func ReadJSON(registry huma.Registry, schema *huma.Schema, data []byte, into any) error {
	bounds := &bounds{registry: registry, root: schema}
	bounds.outline.KeepKeys = true
	if _, err := bounds.Write(data); err != nil {
		return err
	}
	parsed, err := skeleton(registry, schema, data)
	if err != nil {
		return Problem(protocol.CodeInvalidRequest, err.Error())
	}
	result := &huma.ValidateResult{}
	huma.Validate(registry, schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, parsed, result)
	if len(result.Errors) > 0 {
		at := func(location string) (reflect.StructField, bool) {
			return api.FieldAt(reflect.TypeOf(into), location)
		}
		return newProblem(http.StatusUnprocessableEntity, protocol.CodeInvalidRequest, invalidDetail,
			invalidFields(result.Errors, at))
	}
	if err := unmarshal(data, into); err != nil {
		return Problem(protocol.CodeInvalidRequest, describeJSON(data, err).Error())
	}
	return nil
}
