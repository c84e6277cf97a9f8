// Package document reads YAML and JSON documents that people write. It reports everything that is wrong at once, each
// problem with its place and with what to write instead.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"mainstay.dev/mainstay/internal/textfile"
)

// Problem is one thing that is wrong.
type Problem struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`   // from 1; 0: unknown
	Column int    `json:"column,omitempty"` // 0: unknown
	Field  string `json:"field,omitempty"`  // such as steps.build.after[0]; empty: the whole document
	What   string `json:"what"`             // what is wrong, and what to write instead
}

// String is file:line:column: field: what, without the parts that are not known.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		if p.Column > 0 {
			fmt.Fprintf(&b, ":%d", p.Column)
		}
		b.WriteString(": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	return b.String() + p.What
}

// Error holds all problems of a document, at least one, in the order of their places.
type Error struct{ Problems []Problem }

// Error has one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Hint explains a key that is not known; "" leaves the explanation to this package. section is where the key stands.
type Hint func(section, key string) string

// Places says where the fields of a document stand.
type Places struct {
	file   string
	nodes  map[string]*yaml.Node // by field: its key, or the item of a list
	values map[string]*yaml.Node // by field that has a key: its value
}

// tree is a text as YAML reads it; nil: it is empty. Its error is an *Error.
func tree(name string, text []byte) (*yaml.Node, error) {
	text, err := textfile.Clean(text)
	if err != nil {
		return nil, &Error{[]Problem{encodingProblem(name, err)}}
	}
	var root yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, syntaxError(name, text, err)
	}
	if err := decoder.Decode(&yaml.Node{}); err == nil {
		return nil, &Error{
			[]Problem{{File: name, What: `must hold one document; remove what follows the second "---"`}},
		}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxError(name, text, err)
	}
	return root.Content[0], nil
}

// Read decodes text into value, a pointer to a struct whose json tags name the keys. name stands for the file in
// problems. Its error is an *Error.
func Read(name string, text []byte, value any, hint Hint) (*Places, error) {
	root, err := tree(name, text)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, &Error{[]Problem{{File: name, What: "is empty"}}}
	}
	return read(name, root, value, &inspection{hint: hint})
}

// ReadSettings is Read for settings. They may be empty, and a number may stand where text is wanted, as in cpu: 2.
func ReadSettings(name string, text []byte, value any) (*Places, error) {
	root, err := tree(name, text)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return &Places{file: name}, nil
	}
	return read(name, root, value, &inspection{anyText: true})
}

func read(name string, root *yaml.Node, value any, in *inspection) (*Places, error) {
	in.Places = &Places{file: name, nodes: map[string]*yaml.Node{}, values: map[string]*yaml.Node{}}
	in.value("", root, reflect.TypeOf(value).Elem())
	if len(in.problems) > 0 {
		return nil, &Error{in.problems}
	}
	converted, err := toJSON(root, "", nil)
	if err == nil {
		err = json.Unmarshal(converted, value)
	}
	if err != nil {
		return nil, &Error{[]Problem{{File: name, What: err.Error()}}}
	}
	return in.Places, nil
}

// Written reports whether a field stands in the document.
func (p *Places) Written(field string) bool { return p.nodes[field] != nil }

// Line is the line where a field stands; 0: it does not stand in the document.
func (p *Places) Line(field string) int {
	if n := p.nodes[field]; n != nil {
		return n.Line
	}
	return 0
}

// Place is a problem of a field. Where the field is left out, it stands at the nearest section around it.
func (p *Places) Place(field, format string, args ...any) Problem {
	problem := Problem{File: p.file, Field: field, What: fmt.Sprintf(format, args...)}
	for at := field; ; {
		if n, found := p.nodes[at]; found {
			problem.Line, problem.Column = n.Line, n.Column
			return problem
		}
		if at == "" {
			return problem
		}
		at = at[:max(strings.LastIndexAny(at, ".["), 0)]
	}
}

// encodingProblem is the problem of text that is not UTF-8, with its line.
func encodingProblem(name string, err error) Problem {
	if wrong, ok := errors.AsType[*textfile.NotUTF8Error](err); ok {
		return Problem{File: name, Line: wrong.Line, Column: 1, What: "is not UTF-8: write it as UTF-8"}
	}
	return Problem{File: name, What: err.Error()}
}

// JSON is the value of a field. Scalars of the fields in texts become text, exactly as they stand in the document. ok
// is false for a field that is not in the document.
func (p *Places) JSON(field string, texts []string) (value json.RawMessage, ok bool) {
	n, there := p.values[field]
	if !there {
		return nil, false
	}
	value, err := toJSON(n, field, texts)
	return value, err == nil
}

// toJSON writes a YAML tree as JSON. Numbers keep their digits; texts are the fields whose scalars become texts.
func toJSON(n *yaml.Node, field string, texts []string) ([]byte, error) {
	w := &writer{texts: map[string]bool{}}
	for _, text := range texts {
		w.texts[text] = true
	}
	err := w.value(field, n)
	return w.Bytes(), err
}

type writer struct {
	bytes.Buffer
	texts map[string]bool
}

func (w *writer) value(field string, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		w.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				w.WriteByte(',')
			}
			key := n.Content[i].Value
			writeText(&w.Buffer, key)
			w.WriteByte(':')
			if err := w.value(keyIn(field, key), n.Content[i+1]); err != nil {
				return err
			}
		}
		w.WriteByte('}')
		return nil
	case yaml.SequenceNode:
		w.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				w.WriteByte(',')
			}
			if err := w.value(itemIn(field, i), item); err != nil {
				return err
			}
		}
		w.WriteByte(']')
		return nil
	}
	if w.texts[field] {
		writeText(&w.Buffer, n.Value)
		return nil
	}
	return writeScalar(&w.Buffer, n)
}

func writeScalar(b *bytes.Buffer, n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		b.WriteString("null")
	case "!!bool", "!!int", "!!float":
		if text := jsonNumber(n.Value); json.Valid([]byte(text)) {
			b.WriteString(text)
			return nil
		}
		var value any
		if err := n.Decode(&value); err != nil {
			return err
		}
		text, err := json.Marshal(value) // hexadecimal, True, 1_000 …; infinities are refused
		if err != nil {
			return fmt.Errorf("line %d: a number that JSON cannot hold", n.Line)
		}
		b.Write(text)
	default:
		writeText(b, n.Value)
	}
	return nil
}

// jsonNumber is a decimal number of YAML as JSON writes it: +1, .5, 5. and 1_000 are no JSON.
func jsonNumber(text string) string {
	if strings.Trim(text, "+-_.eE0123456789") != "" || text == "" {
		return text
	}
	text = strings.ReplaceAll(strings.TrimPrefix(text, "+"), "_", "")
	sign, digits := "", text
	if rest, negative := strings.CutPrefix(text, "-"); negative {
		sign, digits = "-", rest
	}
	if strings.HasPrefix(digits, ".") {
		digits = "0" + digits
	}
	if i := strings.IndexByte(digits, '.') + 1; i > 0 && (i == len(digits) || digits[i] == 'e' || digits[i] == 'E') {
		digits = digits[:i] + "0" + digits[i:]
	}
	return sign + digits
}

func writeText(b *bytes.Buffer, text string) {
	encoded, _ := json.Marshal(text) // a string is always encoded
	b.Write(encoded)
}
