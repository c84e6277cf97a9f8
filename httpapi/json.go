package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/job"
)

// jsonFormat reads and writes bodies. Its errors say where the body is wrong and never what stood there.
var jsonFormat = huma.Format{
	Marshal: huma.DefaultJSONFormat.Marshal,
	Unmarshal: func(data []byte, v any) error {
		if err := json.Unmarshal(data, v); err != nil {
			return describeJSON(data, err)
		}
		return nil
	},
}

func describeJSON(data []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not valid JSON at %s", position(data, syntax.Offset))
	case errors.As(err, &kind):
		return fmt.Errorf("a number that is too large, or a value of the wrong type, ends at %s",
			position(data, kind.Offset))
	case errors.Is(err, fleet.ErrDuration):
		return fleet.ErrDuration
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
	schemas.RegisterTypeAlias(reflect.TypeFor[fleet.Duration](), reflect.TypeFor[durationSchema]())
	schemas.RegisterTypeAlias(reflect.TypeFor[fleet.Priority](), reflect.TypeFor[prioritySchema]())
	schemas.RegisterTypeAlias(reflect.TypeFor[job.Definition](), reflect.TypeFor[definitionSchema]())
}

// durationSchema describes fleet.Duration.
type durationSchema struct{}

// Schema implements huma.SchemaProvider.
func (durationSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: durationPattern}
}

// definitionSchema describes job.Definition, which has a schema of its own.
type definitionSchema struct{}

// Schema implements huma.SchemaProvider.
func (definitionSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true,
		Description: "A job's definition; GET /api/v1/schemas/job.json describes it."}
}

// prioritySchema describes fleet.Priority: a number or a name.
type prioritySchema struct{}

// Schema implements huma.SchemaProvider.
func (prioritySchema) Schema(huma.Registry) *huma.Schema {
	var numbers, names []any
	for i, name := range fleet.PriorityNames() {
		numbers = append(numbers, float64(i+1)) // as encoding/json decodes them
		names = append(names, name)
	}
	return &huma.Schema{Enum: append(numbers, names...), Examples: []any{"high"}}
}
