package httpapi

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/fleet"
)

// describeTypes gives types of fleet, which does not know huma, the schemas that the OpenAPI document shows.
func describeTypes(schemas huma.Registry) {
	schemas.RegisterTypeAlias(reflect.TypeFor[fleet.Duration](), reflect.TypeFor[durationSchema]())
	schemas.RegisterTypeAlias(reflect.TypeFor[fleet.Priority](), reflect.TypeFor[prioritySchema]())
}

// durationSchema describes fleet.Duration.
type durationSchema struct{}

// Schema implements huma.SchemaProvider.
func (durationSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: durationPattern}
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
