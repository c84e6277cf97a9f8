package api

import (
	"encoding/json"
	"strings"
)

// LaneNeeds are what all tasks of a lane need of their agent: capabilities, resources, and a handler of a type.
type LaneNeeds struct {
	Capabilities []string `json:"capabilities,omitempty"`
	Place        Demand   `json:"place,omitzero"`
	// Type is the type of all of them; empty: they may have different ones.
	Type string `json:"type,omitempty"`
}

// Words is the same for equal needs: JSON has its maps in order.
//
//workflowcheck:ignore
func (n *LaneNeeds) Words() []byte {
	text, _ := json.Marshal(n) // it has nothing that JSON cannot have
	return text
}

// String says what the tasks need.
func (n *LaneNeeds) String() string {
	var parts []string
	if n.Type != "" {
		parts = append(parts, "a handler of type "+n.Type)
	}
	if len(n.Capabilities) > 0 {
		parts = append(parts, strings.Join(n.Capabilities, ", "))
	}
	if !n.Place.IsZero() {
		parts = append(parts, "its resources")
	}
	return strings.Join(parts, ", ")
}
