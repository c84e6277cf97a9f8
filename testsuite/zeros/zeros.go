// Package zeros finds the counts and durations of what people write of which zero is a value. A zero of all others is
// refused: it would stand for what was left out.
package zeros

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"mainstay.dev/sdk/api"
)

// Of lists them for a type and all that is in it, as Type.key, sorted. key names the tag that has a field's name.
func Of(t reflect.Type, key string) []string {
	found := map[string]bool{}
	walk(t, key, map[reflect.Type]bool{}, found)
	list := []string{}
	for name := range found {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func walk(t reflect.Type, key string, seen map[reflect.Type]bool, found map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		walk(t.Elem(), key, seen, found)
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[t] {
		return
	}
	seen[t] = true
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get(key), ",")
		if name == "" && !f.Anonymous || name == "-" {
			continue
		}
		if b, bounded := api.BoundsOf(f); bounded {
			if b.TakesZero() {
				found[t.Name()+"."+name] = true
			}
			continue
		}
		walk(f.Type, key, seen, found)
	}
}

// InRequests lists those of the requests of an OpenAPI document, as Schema.key or operation?parameter.
func InRequests(document []byte) ([]string, error) {
	var d openAPI
	if err := json.Unmarshal(document, &d); err != nil {
		return nil, err
	}
	found, seen := map[string]bool{}, map[string]bool{}
	for _, methods := range d.Paths {
		for _, op := range methods {
			for _, p := range op.Parameters {
				p.Schema.note(op.ID+"?"+p.Name, found)
			}
			for _, content := range op.RequestBody.Content {
				d.walk(op.ID, &content.Schema, seen, found)
			}
		}
	}
	list := []string{}
	for name := range found {
		list = append(list, name)
	}
	slices.Sort(list)
	return list, nil
}

type openAPI struct {
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	ID         string `json:"operationId"`
	Parameters []struct {
		Name   string `json:"name"`
		Schema schema `json:"schema"`
	} `json:"parameters"`
	RequestBody struct {
		Content map[string]struct {
			Schema schema `json:"schema"`
		} `json:"content"`
	} `json:"requestBody"`
}

type schema struct {
	Ref        string             `json:"$ref"`
	Type       json.RawMessage    `json:"type"`
	Pattern    string             `json:"pattern"`
	Minimum    *float64           `json:"minimum"`
	Above      *float64           `json:"exclusiveMinimum"`
	Items      *schema            `json:"items"`
	Values     json.RawMessage    `json:"additionalProperties"`
	Properties map[string]*schema `json:"properties"`
}

// note notes a number or a duration that may be zero. A duration is text whose pattern has its units.
func (s *schema) note(name string, found map[string]bool) {
	number := strings.Contains(string(s.Type), `"integer"`) || strings.Contains(string(s.Type), `"number"`)
	if number && s.Above == nil && (s.Minimum == nil || *s.Minimum <= 0) ||
		strings.Contains(s.Pattern, "hmsdnuµ") && !strings.Contains(s.Pattern, "[1-9]") {
		found[name] = true
	}
}

func (d *openAPI) walk(name string, s *schema, seen, found map[string]bool) {
	if s.Ref != "" {
		name = s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
		if !seen[name] {
			seen[name] = true
			d.walk(name, d.Components.Schemas[name], seen, found)
		}
		return
	}
	for key, property := range s.Properties {
		property.note(name+"."+key, found)
		d.walk(name+"."+key, property, seen, found)
	}
	if s.Items != nil {
		d.walk(name, s.Items, seen, found)
	}
	var values schema
	if len(s.Values) > 0 && s.Values[0] == '{' && json.Unmarshal(s.Values, &values) == nil {
		d.walk(name, &values, seen, found)
	}
}
