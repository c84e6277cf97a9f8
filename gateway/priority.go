package gateway

import (
	"github.com/danielgtaylor/huma/v2"

	"mainstay.dev/mainstay/fleet"
)

// Priority is fleet.Priority as clients give it: a number or a name.
type Priority fleet.Priority

// UnmarshalJSON implements json.Unmarshaler.
func (p *Priority) UnmarshalJSON(data []byte) error { return (*fleet.Priority)(p).UnmarshalJSON(data) }

// Schema shows both forms.
func (Priority) Schema(huma.Registry) *huma.Schema {
	var numbers, names []any
	for i, name := range fleet.PriorityNames() {
		numbers = append(numbers, float64(i+1)) // as encoding/json decodes them
		names = append(names, name)
	}
	return &huma.Schema{Enum: append(numbers, names...), Examples: []any{"high"}}
}
