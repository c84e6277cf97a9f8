package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/spelling"
)

// inspection compares a YAML tree with the types of Config before it is decoded, because the decoder's own errors name
// Go types and, for durations, no line. What is wrong is taken out of the tree, so that the rest can be read and
// checked.
type inspection struct {
	file     string
	lines    map[string]int // by field
	problems []Problem
	unread   []string // the names of keys whose values are not known: wrong in form, or misspelt
}

func inspect(file string, root *yaml.Node) *inspection {
	in := &inspection{file: file, lines: map[string]int{}}
	in.value("", root, reflect.TypeFor[Config]())
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
	in.problems = append(in.problems, Problem{File: in.file, Line: line, Field: field,
		What: fmt.Sprintf(format, args...)})
}

// value reports whether there is something to be read.
func (in *inspection) value(field string, n *yaml.Node, t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.Kind == yaml.AliasNode:
		in.report(n.Line, field, "must be written out: aliases are not allowed")
		return false
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		// Nothing is written, so the default stays.
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return in.scalar(field, n, t)
	case t.Kind() == reflect.Struct:
		return in.section(field, n, t)
	case t.Kind() == reflect.Map:
		return in.entries(field, n, t)
	case t.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			in.report(n.Line, field, "must be a list")
			return false
		}
		whole := true
		for i, item := range n.Content {
			itemField := fmt.Sprintf("%s[%d]", field, i)
			in.lines[itemField] = item.Line
			whole = in.value(itemField, item, t.Elem()) && whole
		}
		return whole
	default:
		return in.scalar(field, n, t)
	}
	return true
}

// keys are the fields of a section, also those of a struct in it that is inline.
func keys(section reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(section), func(f reflect.StructField) bool { return f.Anonymous })
}

func (in *inspection) section(field string, n *yaml.Node, t reflect.Type) bool {
	fields := map[string]reflect.StructField{}
	var names []string
	for _, key := range keys(t) {
		name, _, _ := strings.Cut(key.Tag.Get("yaml"), ",")
		fields[name] = key
		names = append(names, name)
	}
	if n.Kind != yaml.MappingNode {
		in.report(n.Line, field, "must be a section with some of the keys %s", strings.Join(names, ", "))
		return false
	}
	var kept []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		keyField := key.Value
		if field != "" {
			keyField = field + "." + key.Value
		}
		known := fields[key.Value].Name != ""
		if !known || key.Kind != yaml.ScalarNode {
			if near := spelling.Nearest(key.Value, names); near != "" {
				in.report(key.Line, keyField, "is no known key; did you mean %s?", near)
				in.unread = append(in.unread, near)
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
		if in.field(keyField, value, fields[key.Value]) {
			kept = append(kept, key, value)
		} else {
			in.unread = append(in.unread, key.Value)
		}
	}
	n.Content = kept
	return true
}

// field checks the value of a key. What is only out of its bounds can be read, but would hide what is wrong.
func (in *inspection) field(field string, n *yaml.Node, f reflect.StructField) bool {
	b, bounded := fleet.BoundsOf(f)
	if !bounded || n.Kind == yaml.AliasNode {
		return in.value(field, n, f.Type)
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		in.report(n.Line, field, "has no value: give it one, or leave it out")
		return false
	}
	var value any
	switch tag := n.ShortTag(); {
	case n.Kind != yaml.ScalarNode:
	case tag == "!!int", tag == "!!float":
		var number float64
		if n.Decode(&number) == nil {
			value = number
		}
	default:
		value = n.Value
	}
	err := b.Check(value)
	switch {
	case errors.Is(err, fleet.ErrDuration):
		in.report(n.Line, field, "is %s", err)
	case err != nil:
		in.report(n.Line, field, "%s", err)
	}
	return err == nil
}

// entries checks a section whose keys the user chooses.
func (in *inspection) entries(field string, n *yaml.Node, t reflect.Type) bool {
	if n.Kind != yaml.MappingNode {
		in.report(n.Line, field, "must be a section with keys of your own")
		return false
	}
	var kept []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		entry := field + "." + key.Value
		if first, twice := in.lines[entry]; twice {
			in.report(key.Line, entry, "is already set in line %d; keep one of them", first)
			continue
		}
		in.lines[entry] = key.Line
		if in.value(entry, n.Content[i+1], t.Elem()) {
			kept = append(kept, key, n.Content[i+1])
		}
	}
	n.Content = kept
	return true
}

func (in *inspection) scalar(field string, n *yaml.Node, t reflect.Type) bool {
	if n.Kind == yaml.ScalarNode && n.Decode(reflect.New(t).Interface()) == nil {
		return true
	}
	switch {
	case t.Kind() == reflect.Float64:
		in.report(n.Line, field, "must be a number")
	case t.Kind() == reflect.Bool:
		in.report(n.Line, field, "must be true or false")
	default:
		in.report(n.Line, field, "must be text")
	}
	return false
}

// doubtful reports whether a problem of a value may only follow from what could not be read: it stands there, in it or
// around it, or is about a key of that name, or compares with one.
func (in *inspection) doubtful(p Problem) bool {
	for i := range in.problems {
		if wrong := in.problems[i].Field; within(p.Field, wrong) || within(wrong, p.Field) {
			return true
		}
	}
	return slices.ContainsFunc(in.unread, func(name string) bool {
		return strings.HasSuffix(p.Field, "."+name) || strings.Contains(p.What, name+" (")
	})
}

// within reports whether a field is a section, or is in it. The whole file is "".
func within(field, section string) bool {
	rest, in := strings.CutPrefix(field, section)
	return in && (section == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}
