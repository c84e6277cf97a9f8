package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"

	"mainstay.dev/mainstay/fleet"
)

// inspection compares a YAML tree with the types of Config before it is decoded, because the decoder's own errors name
// Go types and, for durations, no line.
type inspection struct {
	file     string
	lines    map[string]int // by field
	problems []Problem
}

func inspect(file string, document *yaml.Node) *inspection {
	in := &inspection{file: file, lines: map[string]int{}}
	for _, root := range document.Content {
		in.value("", root, reflect.TypeFor[Config]())
	}
	return in
}

// line is where the field stands, or the nearest section around it when it is left out.
func (in *inspection) line(field string) int {
	for field != "" {
		if line, found := in.lines[field]; found {
			return line
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return 0
}

func (in *inspection) report(line int, field, format string, args ...any) {
	in.problems = append(in.problems, Problem{File: in.file, Line: line, Field: field, What: fmt.Sprintf(format, args...)})
}

func (in *inspection) value(field string, n *yaml.Node, t reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.Kind == yaml.AliasNode:
		in.report(n.Line, field, "must be written out: aliases are not allowed")
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		// Nothing is written, so the default stays.
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		in.scalar(field, n, t)
	case t.Kind() == reflect.Struct:
		in.section(field, n, t)
	case t.Kind() == reflect.Map:
		in.entries(field, n, t)
	case t.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			in.report(n.Line, field, "must be a list")
			return
		}
		for i, item := range n.Content {
			itemField := fmt.Sprintf("%s[%d]", field, i)
			in.lines[itemField] = item.Line
			in.value(itemField, item, t.Elem())
		}
	default:
		in.scalar(field, n, t)
	}
}

func (in *inspection) section(field string, n *yaml.Node, t reflect.Type) {
	types := map[string]reflect.Type{}
	var names []string
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("yaml")
		types[name] = t.Field(i).Type
		names = append(names, name)
	}
	if n.Kind != yaml.MappingNode {
		in.report(n.Line, field, "must be a section with some of the keys %s", strings.Join(names, ", "))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		keyField := key.Value
		if field != "" {
			keyField = field + "." + key.Value
		}
		keyType, known := types[key.Value]
		if !known || key.Kind != yaml.ScalarNode {
			if near := nearest(key.Value, names); near != "" {
				in.report(key.Line, keyField, "is no known key; did you mean %s?", near)
			} else {
				in.report(key.Line, keyField, "is no known key; known here are %s", strings.Join(names, ", "))
			}
			continue
		}
		if first, twice := in.lines[keyField]; twice {
			in.report(key.Line, keyField, "is already set in line %d; keep one of them", first)
			continue
		}
		in.lines[keyField] = key.Line
		in.value(keyField, value, keyType)
	}
}

// entries checks a section whose keys the user chooses.
func (in *inspection) entries(field string, n *yaml.Node, t reflect.Type) {
	if n.Kind != yaml.MappingNode {
		in.report(n.Line, field, "must be a section with keys of your own")
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		entry := field + "." + key.Value
		if first, twice := in.lines[entry]; twice {
			in.report(key.Line, entry, "is already set in line %d; keep one of them", first)
			continue
		}
		in.lines[entry] = key.Line
		in.value(entry, n.Content[i+1], t.Elem())
	}
}

func (in *inspection) scalar(field string, n *yaml.Node, t reflect.Type) {
	if n.Kind == yaml.ScalarNode && n.Decode(reflect.New(t).Interface()) == nil {
		return
	}
	switch {
	case t == reflect.TypeFor[fleet.Duration]():
		in.report(n.Line, field, `must be a duration like "30s", "1m30s" or "00:00:30"`)
	case t.Kind() == reflect.Int:
		in.report(n.Line, field, "must be a whole number")
	case t.Kind() == reflect.Float64:
		in.report(n.Line, field, "must be a number")
	case t.Kind() == reflect.Bool:
		in.report(n.Line, field, "must be true or false")
	default:
		in.report(n.Line, field, "must be text")
	}
}
