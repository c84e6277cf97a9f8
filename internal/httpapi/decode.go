package httpapi

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// locateBody gives the location and the value of the wrong field to the errors of a body that fits its schema but
// cannot be decoded: huma names only the body.
func locateBody(t reflect.Type, errs []error) {
	for _, err := range errs {
		var detail *huma.ErrorDetail
		if !errors.As(err, &detail) || detail.Location != "body" {
			continue
		}
		body, ok := detail.Value.(string)
		if where, value := undecodable(t, []byte(body)); ok && where != "" {
			detail.Location += where
			if json.Unmarshal(value, &detail.Value) != nil {
				detail.Value = string(value)
			}
		}
	}
}

// undecodable finds the innermost value of a text that does not fit its type, such as .retry.wait; empty: the text.
func undecodable(t reflect.Type, data []byte) (where string, value []byte) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	inner := func(step string, t reflect.Type, part []byte) bool {
		if json.Unmarshal(part, reflect.New(t).Interface()) == nil {
			return false
		}
		deeper, found := undecodable(t, part)
		where, value = step+deeper, found
		return true
	}
	value = data
	if p := reflect.PointerTo(t); p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return where, value
	}
	switch t.Kind() {
	case reflect.Struct:
		var members map[string]json.RawMessage
		_ = json.Unmarshal(data, &members) // of a text that is no object nothing is found
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if part, given := members[name]; given && !f.Anonymous && inner("."+name, f.Type, part) {
				return where, value
			}
		}
	case reflect.Map:
		var members map[string]json.RawMessage
		_ = json.Unmarshal(data, &members)
		for name, part := range members {
			if inner("."+name, t.Elem(), part) {
				return where, value
			}
		}
	case reflect.Slice, reflect.Array:
		var elements []json.RawMessage
		_ = json.Unmarshal(data, &elements)
		for i, part := range elements {
			if inner(fmt.Sprintf("[%d]", i), t.Elem(), part) {
				return where, value
			}
		}
	}
	return where, value
}
