package document

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/spelling"
)

const (
	// MaxDepth bounds the nesting of a document, and maxKey its keys in bytes.
	MaxDepth = 64
	maxKey   = 1000
	// maxField bounds the names of fields in bytes; deeper fields have the name of the one around them.
	maxField = 256
	// maxProblems bounds the problems of one document, because a hint compares a key with all known ones.
	maxProblems = 100
)

// below is the name of a field in another.
func below(field, part string) string {
	if len(field)+len(part) > maxField {
		return field
	}
	return field + part
}

// keyIn is the name of a field in a section, and itemIn that of an item in a list.
func keyIn(field, key string) string {
	if field == "" {
		return key
	}
	return below(field, "."+key)
}

func itemIn(field string, i int) string { return below(field, fmt.Sprintf("[%d]", i)) }

// forbidden finds the characters that YAML takes only as an escape, and JSON writes as they are: a document that is
// written as JSON could not be read again.
func forbidden(r rune) bool {
	return r >= 0x7f && r < 0xa0 && r != 0x85 || r == 0xfffe || r == 0xffff
}

// inspection compares a YAML tree with Go types before it is decoded: the decoders' own errors name Go types, and end
// with the first.
type inspection struct {
	*Places
	hint     Hint
	anyText  bool // a number or a truth value may stand for text
	depth    int
	problems []Problem
}

func (in *inspection) full() bool { return len(in.problems) >= maxProblems }

func (in *inspection) report(n *yaml.Node, field, format string, args ...any) {
	if in.full() {
		return
	}
	in.problems = append(in.problems, Problem{File: in.file, Line: n.Line, Column: n.Column, Field: field,
		What: fmt.Sprintf(format, args...)})
}

// value checks n against t, and notes where it stands.
func (in *inspection) value(field string, n *yaml.Node, t reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, noted := in.nodes[field]; !noted {
		in.nodes[field] = n
	}
	if in.depth++; in.depth > MaxDepth {
		in.report(n, field, "is nested deeper than %d levels", MaxDepth)
		return
	}
	defer func() { in.depth-- }()
	switch {
	case n.Kind == yaml.AliasNode:
		in.report(n, field, "must be written out: aliases are not allowed")
	case n.Kind == yaml.ScalarNode && n.Anchor != "":
		in.report(n, field, "begins with &, which is YAML's mark of an anchor: put it in quotes")
	case n.Kind == yaml.ScalarNode && strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!"):
		in.report(n, field, "begins with !, which is YAML's mark of a type: put it in quotes")
	case n.Kind == yaml.ScalarNode && strings.ContainsFunc(n.Value, forbidden):
		in.report(n, field, "has a control character: leave it out")
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		// Nothing is written, so the default stays.
	case t == reflect.TypeFor[json.RawMessage]() || t.Kind() == reflect.Interface:
		in.anything(field, n)
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct && t.NumField() > 0 &&
		t.Field(0).Tag.Get("json") != "":
		in.section(field, n, t) // also of a type that may be written as one word
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		in.custom(field, n, t)
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		in.text(field, n, reflect.New(t).Interface().(encoding.TextUnmarshaler))
	case t.Kind() == reflect.Struct:
		in.section(field, n, t)
	case t.Kind() == reflect.Map:
		in.entries(field, n, t)
	case t.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			like := "[a, b]"
			if e := t.Elem(); e.Kind() == reflect.Struct || e.Kind() == reflect.Pointer {
				like = "[{…}, {…}]"
			}
			in.report(n, field, "must be a list, like %s", like)
			return
		}
		for i, item := range n.Content {
			in.value(itemIn(field, i), item, t.Elem())
		}
	default:
		in.scalar(field, n, t)
	}
}

// anything checks a value that may have any form.
func (in *inspection) anything(field string, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		in.entries(field, n, reflect.TypeFor[map[string]any]())
	case yaml.SequenceNode:
		for i, item := range n.Content {
			in.value(itemIn(field, i), item, reflect.TypeFor[any]())
		}
	default:
		if err := writeScalar(&bytes.Buffer{}, n); err != nil {
			in.report(n, field, "must be a value that JSON can hold")
		}
	}
}

// wholeNumbers writes whole numbers as Go reads them: 2.0 and 2e0 are 2, as in JSON Schema.
func wholeNumbers(n *yaml.Node) {
	for _, item := range n.Content {
		wholeNumbers(item)
	}
	var number float64
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!float" && n.Decode(&number) == nil &&
		number == math.Trunc(number) && math.Abs(number) <= 1<<53 {
		n.Value, n.Tag = strconv.FormatFloat(number, 'f', 0, 64), "!!int"
	}
}

// custom checks a value whose type reads itself; the type's own message explains what it wants.
func (in *inspection) custom(field string, n *yaml.Node, t reflect.Type) {
	wholeNumbers(n)
	text, err := toJSON(n, field, nil)
	if err == nil {
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	if err != nil {
		in.report(n, field, "%s", err)
	}
}

// text checks a value that is written as text, such as a duration.
func (in *inspection) text(field string, n *yaml.Node, value encoding.TextUnmarshaler) {
	if n.Kind != yaml.ScalarNode {
		in.report(n, field, "must be text")
	} else if err := value.UnmarshalText([]byte(n.Value)); err != nil {
		in.report(n, field, "is %s", err)
	} else if n.ShortTag() != "!!str" {
		in.report(n, field, "must be text: put it in quotes")
	}
}

// bounded checks a number or a duration.
func (in *inspection) bounded(field string, n *yaml.Node, b api.Bounds) {
	wholeNumbers(n)
	var value any
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		in.report(n, field, "has no value: give it one, or leave it out")
		return
	case n.Kind != yaml.ScalarNode:
	case n.ShortTag() == "!!int", n.ShortTag() == "!!float":
		var number float64
		if n.Decode(&number) == nil {
			value = number
		}
	default:
		value = n.Value
	}
	switch err := b.Check(value); {
	case errors.Is(err, api.ErrDuration):
		in.report(n, field, "is %s", err)
	case err != nil:
		in.report(n, field, "%s", err)
	}
}

// fieldsOf are the keys of a struct with their fields; embedded structs give theirs.
func fieldsOf(t reflect.Type) (names []string, fields map[string]reflect.StructField) {
	fields = map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous && name == "" || name == "-" {
			continue
		}
		names = append(names, name)
		fields[name] = f
	}
	return names, fields
}

// holder is the section among the fields that has a key; "": none has.
func holder(key string, names []string, fields map[string]reflect.StructField) string {
	for _, name := range names {
		t := fields[name].Type
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			continue
		}
		if _, below := fieldsOf(t); below[key].Name != "" {
			return name
		}
	}
	return ""
}

func (in *inspection) section(field string, n *yaml.Node, t reflect.Type) {
	names, fields := fieldsOf(t)
	if n.Kind != yaml.MappingNode {
		in.report(n, field, "must be a section with some of the keys %s", strings.Join(names, ", "))
		return
	}
	in.each(field, n, func(key, value *yaml.Node, at string) {
		if f, known := fields[key.Value]; known {
			if b, bounded := api.BoundsOf(f); bounded && value.Kind != yaml.AliasNode {
				in.bounded(at, value, b)
			} else {
				in.value(at, value, f.Type)
			}
			return
		}
		if in.full() {
			return
		}
		explanation := ""
		if in.hint != nil {
			explanation = in.hint(field, key.Value)
		}
		if in := holder(key.Value, names, fields); explanation == "" && in != "" {
			explanation = fmt.Sprintf("belongs in %[1]s: {%[1]s: {%[2]s: …}}", in, key.Value)
		}
		if near := spelling.Nearest(key.Value, names); explanation == "" && near != "" {
			explanation = fmt.Sprintf("is no known key; did you mean %s?", near)
		}
		in.report(key, at, "%s", cmp.Or(explanation, "is no known key; known here are "+strings.Join(names, ", ")))
	})
}

// entries checks a section whose keys the user chooses.
func (in *inspection) entries(field string, n *yaml.Node, t reflect.Type) {
	if n.Kind != yaml.MappingNode {
		in.report(n, field, "must be a section with keys of your own, like {name: …}")
		return
	}
	in.each(field, n, func(_, value *yaml.Node, at string) { in.value(at, value, t.Elem()) })
}

// each calls do for every key of a section that stands there once.
func (in *inspection) each(field string, n *yaml.Node, do func(key, value *yaml.Node, at string)) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, at := n.Content[i], keyIn(field, n.Content[i].Value)
		if key.Kind != yaml.ScalarNode {
			in.report(key, field, "has a key that is no text: put a text that begins with {{ in quotes")
			continue
		}
		if strings.ContainsFunc(key.Value, forbidden) {
			in.report(key, field, "has a key with a control character: leave it out")
			continue
		}
		if len(key.Value) > maxKey {
			in.report(key, field, "has a key of more than %d bytes", maxKey)
			continue
		}
		if line, twice := first[key.Value]; twice {
			in.report(key, at, "is already set in line %d; keep one of them", line)
			continue
		}
		first[key.Value] = key.Line
		if at != field {
			in.nodes[at], in.values[at] = key, n.Content[i+1]
		}
		do(key, n.Content[i+1], at)
	}
}

func (in *inspection) scalar(field string, n *yaml.Node, t reflect.Type) {
	want := map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Float64: "a number"}[t.Kind()]
	kinds := []string{"!!bool"}
	switch t.Kind() {
	case reflect.Bool:
	case reflect.Float64:
		kinds = []string{"!!int", "!!float"}
	case reflect.String:
		want, kinds = "text", []string{"!!str", "!!timestamp"}
		if in.anyText && n.Kind == yaml.ScalarNode {
			n.Tag = "!!str"
		}
	default:
		wholeNumbers(n)
		want, kinds = "a whole number", []string{"!!int"}
	}
	if n.Kind == yaml.ScalarNode && slices.Contains(kinds, n.ShortTag()) &&
		n.Decode(reflect.New(t).Interface()) == nil {
		return
	}
	if want == "text" && n.Kind == yaml.ScalarNode {
		want = "text: put it in quotes"
	}
	in.report(n, field, "must be %s", want)
}
