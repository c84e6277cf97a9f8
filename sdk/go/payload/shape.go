package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/spelling"
)

type object = map[string]any

// shape is a form that a value may have: how it is read, and the JSON Schema that says the same.
type shape struct {
	schema object
	read   func(r *reader, at string, value json.RawMessage)
	text   bool // a text: expressions may be a part of it
}

// maxProblems bounds the problems reported for one payload.
const maxProblems = 20

// reader reads a value by its shape, and writes it as it is meant: with text where only text fits.
type reader struct {
	template bool // ${…} stands for an unknown value
	out      bytes.Buffer
	taken    []string // fields where text was made of a number, true or false
	problems []Problem
}

func (r *reader) wrong(at, format string, args ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, Problem{at, fmt.Sprintf(format, args...)})
	}
}

func (r *reader) value(s *shape, at string, value json.RawMessage) {
	if value = trim(value); r.unknown(value) || s.text && r.hasExpression(value) {
		r.out.Write(value)
		return
	}
	s.read(r, at, value)
}

// hasExpression reports whether an expression is a part of a text.
func (r *reader) hasExpression(value json.RawMessage) bool {
	return r.template && value[0] == '"' && bytes.Contains(value, []byte("${"))
}

// unknown reports whether an expression stands for the whole value, which may then be anything.
func (r *reader) unknown(value json.RawMessage) bool {
	return r.template && bytes.HasPrefix(value, []byte(`"${`)) && bytes.HasSuffix(value, []byte(`}"`))
}

func trim(value json.RawMessage) json.RawMessage { return bytes.TrimSpace(value) }

// textRule says which texts are allowed. The lengths are in bytes; 0 is no bound.
type textRule struct {
	least, most           int
	noZero, scalar        bool // without zero bytes; a number, true or false is taken as text
	words                 []string
	pattern               string
	empty, tooLong, wrong string // messages for a text that is too short, too long, or not of the pattern
}

func text(rule textRule) *shape {
	schema := object{"type": "string"}
	if rule.scalar {
		schema["type"] = []string{"string", "number", "boolean"}
	}
	if rule.least > 0 {
		schema["minLength"] = rule.least
	}
	if rule.most > 0 {
		schema["maxLength"] = rule.most
	}
	if rule.noZero {
		schema["pattern"] = `^[^\x00]*$`
	}
	if rule.words != nil {
		schema["enum"] = rule.words
	}
	var pattern *regexp.Regexp
	if rule.pattern != "" {
		schema["pattern"], pattern = rule.pattern, regexp.MustCompile(rule.pattern)
	}
	read := func(r *reader, at string, value json.RawMessage) {
		text, ok := r.text(at, value, rule.scalar)
		switch {
		case !ok:
			return
		case len(text) < rule.least:
			r.wrong(at, "%s", rule.empty)
		case rule.most > 0 && len(text) > rule.most:
			r.wrong(at, "has %d bytes, and at most %d are allowed: %s", len(text), rule.most, rule.tooLong)
		case rule.noZero && strings.ContainsRune(text, 0):
			r.wrong(at, zeroByte)
		case rule.words != nil && !slices.Contains(rule.words, text):
			r.wrong(at, "must be one of %s%s", strings.Join(rule.words, ", "), didYouMean(text, rule.words))
		case pattern != nil && !pattern.MatchString(text):
			r.wrong(at, "%s", rule.wrong)
		}
	}
	return &shape{schema, read, true}
}

// text reads a text, and writes it.
func (r *reader) text(at string, value json.RawMessage, scalar bool) (text string, ok bool) {
	switch c := value[0]; {
	case c == '"':
		if json.Unmarshal(value, &text) != nil {
			r.wrong(at, "is not JSON")
			return "", false
		}
		r.out.Write(value)
		return text, true
	case c == 'n':
		r.wrong(at, `is null, and must be text: write "" for an empty one, or leave it out`)
	case c == '{' || c == '[' || !scalar:
		r.wrong(at, "must be text, and is %s", kindOf(value))
	default:
		r.taken = append(r.taken, at)
		_, _ = fmt.Fprintf(&r.out, `"%s"`, value)
		return string(value), true
	}
	return "", false
}

// otherNames are what fields are called elsewhere.
var otherNames = map[string]string{"cwd": "dir", "workdir": "dir", "working_dir": "dir", "working_directory": "dir",
	"cmd": "command", "script": "command", "args": "command", "environment": "env", "params": "arguments",
	"input": "arguments", "prompt": "messages"}

// nearest is the name that was meant; empty: nobody knows.
func nearest(word string, names []string) string {
	if other := otherNames[word]; slices.Contains(names, other) {
		return other
	}
	return spelling.Nearest(word, names)
}

func didYouMean(word string, names []string) string {
	if near := nearest(word, names); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

type listRule struct {
	first *shape // of the first item, if it is another
	least int
	wrong string // message for a value that is no list, or too short
}

func list(of *shape, rule listRule) *shape {
	schema := object{"type": "array", "items": of.schema}
	if rule.first != nil {
		schema["prefixItems"] = []object{rule.first.schema}
	}
	if rule.least > 0 {
		schema["minItems"] = rule.least
	}
	return &shape{schema: schema, read: func(r *reader, at string, value json.RawMessage) {
		if value[0] != '[' {
			r.wrong(at, "%s", rule.wrong)
			return
		}
		n := 0
		r.out.WriteByte('[')
		each(value, func(_ string, item json.RawMessage) bool {
			s := of
			if n == 0 && rule.first != nil {
				s = rule.first
			}
			if n > 0 {
				r.out.WriteByte(',')
			}
			r.value(s, fmt.Sprintf("%s[%d]", at, n), item)
			n++
			return len(r.problems) < maxProblems
		})
		if r.out.WriteByte(']'); n < rule.least {
			r.wrong(at, "is empty: %s", rule.wrong)
		}
	}}
}

type dictionaryRule struct {
	name                    string // the pattern of names
	most                    int    // bytes of a name and its value together
	wrong, badName, tooLong string
}

func dictionary(of *shape, rule dictionaryRule) *shape {
	name := regexp.MustCompile(rule.name)
	schema := object{"type": "object", "propertyNames": object{"pattern": rule.name}, "additionalProperties": of.schema}
	return &shape{schema: schema, read: func(r *reader, at string, value json.RawMessage) {
		if value[0] != '{' {
			r.wrong(at, "%s", rule.wrong)
			return
		}
		r.members(at, value, func(key, field string, item json.RawMessage) {
			if !name.MatchString(key) {
				r.wrong(at, "%s", rule.badName)
				return
			}
			begin, before := r.out.Len(), len(r.problems)
			r.value(of, field, item)
			if size := len(key) + len(decoded(r.out.Bytes()[begin:])); size > rule.most && len(r.problems) == before {
				r.wrong(field, "has %d bytes with its name, and at most %d are allowed: %s", size, rule.most, rule.tooLong)
			}
		})
	}}
}

// decoded is the text of a value; empty where it is none.
func decoded(value json.RawMessage) (text string) {
	_ = json.Unmarshal(value, &text) // a value that is no text was reported
	return text
}

// member is a field of an object.
type member struct {
	name, doc string
	shape     *shape
	required  bool
}

func record(members ...member) *shape {
	properties, needed, names := object{}, []string{}, make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
		property := object{"description": m.doc}
		for key, value := range m.shape.schema {
			property[key] = value
		}
		if m.required {
			needed = append(needed, m.name)
		} else if kinds, ok := property["type"].([]string); ok { // null is left out
			property["type"] = append(slices.Clone(kinds), "null")
		} else if kind, ok := property["type"].(string); ok {
			property["type"] = []string{kind, "null"}
		}
		properties[m.name] = property
	}
	schema := object{"type": "object", "properties": properties, "required": needed, "additionalProperties": false}
	return &shape{schema: schema, read: func(r *reader, at string, value json.RawMessage) {
		if value[0] != '{' {
			r.wrong(at, "must be an object with %s, and is %s", strings.Join(names, ", "), kindOf(value))
			return
		}
		var there []string
		r.members(at, value, func(key, field string, item json.RawMessage) {
			i := slices.IndexFunc(members, func(m member) bool { return m.name == key })
			switch null := string(trim(item)) == "null"; {
			case i < 0:
				hint := "; there are " + strings.Join(names, ", ")
				if meant := nearest(key, names); meant != "" {
					hint, there = "; did you mean "+meant+"?", append(there, meant)
				}
				r.wrong(field, "there is no such field%s", hint)
			case null && (members[i].required || members[i].shape.schema["type"] != nil):
				r.out.WriteString("null") // it is left out
			default:
				there = append(there, key)
				r.value(members[i].shape, field, item)
			}
		})
		for _, m := range members {
			if m.required && !slices.Contains(there, m.name) {
				r.wrong(at, "has no %s: %s", m.name, lower(m.doc))
			}
		}
	}}
}

func lower(doc string) string { return strings.ToLower(doc[:1]) + strings.TrimSuffix(doc[1:], ".") }

// maxKey bounds how much of a name is in a problem's field, in bytes.
const maxKey = 64

// members reads the members of an object, and writes it.
func (r *reader) members(at string, value json.RawMessage, do func(key, field string, item json.RawMessage)) {
	seen := map[string]bool{}
	r.out.WriteByte('{')
	each(value, func(key string, item json.RawMessage) bool {
		field := at + "." + api.Printable(strings.ToValidUTF8(key[:min(len(key), maxKey)], ""))
		if len(seen) > 0 {
			r.out.WriteByte(',')
		}
		name, _ := json.Marshal(key) // a text
		r.out.Write(append(name, ':'))
		if seen[key] {
			r.wrong(field, "stands there twice: keep one of them")
		} else {
			do(key, field, item)
		}
		seen[key] = true
		return len(r.problems) < maxProblems
	})
	r.out.WriteByte('}')
}

// each calls do for the members of an object, or for the items of a list, without a key, until it returns false. value
// is valid.
func each(value json.RawMessage, do func(key string, item json.RawMessage) bool) {
	d := json.NewDecoder(bytes.NewReader(value))
	_, _ = d.Token()
	for d.More() {
		key := ""
		if value[0] == '{' {
			name, _ := d.Token()
			key, _ = name.(string)
		}
		var item json.RawMessage
		if d.Decode(&item) != nil || !do(key, item) {
			return
		}
	}
}

func anything() *shape {
	return &shape{schema: object{}, read: func(r *reader, _ string, value json.RawMessage) { r.out.Write(value) }}
}

func anObject(wrong string) *shape {
	return &shape{schema: object{"type": "object"}, read: func(r *reader, at string, value json.RawMessage) {
		if value[0] != '{' {
			r.wrong(at, "%s", wrong)
			return
		}
		r.out.Write(value)
	}}
}

func boolean() *shape {
	return &shape{schema: object{"type": "boolean"}, read: func(r *reader, at string, value json.RawMessage) {
		if value[0] != 't' && value[0] != 'f' {
			r.wrong(at, "must be true or false, and is %s", kindOf(value))
			return
		}
		r.out.Write(value)
	}}
}

// maxWhole bounds a whole number: every number up to it is exact in JSON.
const maxWhole = 1<<53 - 1

func whole(least int) *shape {
	schema := object{"type": "integer", "minimum": least, "maximum": maxWhole}
	return &shape{schema: schema, read: func(r *reader, at string, value json.RawMessage) {
		n, err := strconv.ParseFloat(string(value), 64)
		if err != nil || n != math.Trunc(n) || n < float64(least) || n > maxWhole {
			r.wrong(at, "must be a whole number, %d or more", least)
			return
		}
		r.out.WriteString(strconv.FormatInt(int64(n), 10))
	}}
}

func number(least int) *shape {
	return &shape{schema: object{"type": "number", "minimum": least}, read: func(r *reader, at string, value json.RawMessage) {
		if n, err := strconv.ParseFloat(string(value), 64); err != nil || n < float64(least) {
			r.wrong(at, "must be a number, %d or more", least)
			return
		}
		r.out.Write(value)
	}}
}

// templated is a schema that lets an expression stand for each value, and be a part of each text.
func templated(schema object) object {
	changed := maps.Clone(schema)
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := schema[key].(object); ok {
			changed[key] = templated(inner)
		}
	}
	if first, ok := schema["prefixItems"].([]object); ok {
		changed["prefixItems"] = []object{templated(first[0])}
	}
	if properties, ok := schema["properties"].(object); ok {
		inner := object{}
		for name, property := range properties {
			inner[name] = templated(property.(object))
		}
		changed["properties"] = inner
	}
	kinds, _ := schema["type"].([]string)
	switch expression := (object{"type": "string", "pattern": `^\$\{.*\}$`}); {
	case schema["type"] == nil:
		return changed
	case schema["type"] == "string" || slices.Contains(kinds, "string"):
		expression["pattern"] = `\$\{`
		fallthrough
	default:
		return object{"anyOf": []object{changed, expression}}
	}
}
