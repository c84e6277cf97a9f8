package flow

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// noLoader refuses references to other documents.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("a schema cannot refer to another document; write it out")
}

// compileSchema reads a JSON Schema; nil for none.
func compileSchema(schema json.RawMessage) (*jsonschema.Schema, error) {
	if len(schema) == 0 || string(schema) == "null" {
		return nil, nil
	}
	value, err := decodeForSchema(schema)
	if err != nil {
		return nil, err
	}
	if _, err := (&schemaSize{root: value, of: map[string]int{}}).count(value); err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(schemaName, value); err != nil {
		return nil, err
	}
	compiled, err := compiler.Compile(schemaName)
	return compiled, schemaError(err)
}

// schemaName is what the schema is called in itself. It is no file's name: errors would have the folder.
const schemaName = "urn:inputs"

// maxSchemaParts bounds a schema whose references are written out: a few of them may stand for any number of parts, and
// each is checked against the inputs.
const maxSchemaParts = 1000

// otherReferences change or extend what a $ref names.
var otherReferences = []string{"$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"}

// schemaSize counts the parts of a schema.
type schemaSize struct {
	root any
	of   map[string]int // by reference; 0: it is being counted
}

func (s *schemaSize) count(value any) (parts int, err error) {
	var inside []any
	switch v := value.(type) {
	case []any:
		inside = v
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			text, isText := v[name].(string)
			switch {
			case isText && name == "$ref":
				n, err := s.reference(text)
				if err != nil {
					return 0, err
				}
				parts += n
			case isText && slices.Contains(otherReferences, name):
				return 0, fmt.Errorf("%s is not supported; a $ref like #/$defs/name is", name)
			}
			inside = append(inside, v[name])
		}
	}
	parts++
	for _, v := range inside {
		n, err := s.count(v)
		if parts += n; err != nil || parts > maxSchemaParts {
			return 0, cmp.Or(err, fmt.Errorf("has more than %d parts with its references written out", maxSchemaParts))
		}
	}
	return parts, nil
}

func (s *schemaSize) reference(ref string) (int, error) {
	if n, known := s.of[ref]; known {
		if n == 0 {
			return 0, fmt.Errorf("$ref %s refers to itself", ref)
		}
		return n, nil
	}
	path, local := strings.CutPrefix(ref, "#/")
	target := s.root
	for _, name := range strings.Split(path, "/") {
		object, _ := target.(map[string]any)
		if target = object[name]; target == nil || !local {
			return 0, fmt.Errorf("$ref %s is not like #/$defs/name, or names nothing", ref)
		}
	}
	s.of[ref] = 0
	n, err := s.count(target)
	s.of[ref] = n
	return n, err
}

func decodeForSchema(data json.RawMessage) (any, error) {
	if len(data) == 0 {
		data = json.RawMessage(`{}`)
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(data))
}

// maxWrong bounds what is told of one value.
const maxWrong = 10

// schemaErrors are all causes of an error, each as schemaError has it.
func schemaErrors(err error) (all []string) {
	var wrong *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &wrong) || len(wrong.Causes) == 0:
		return []string{schemaError(err).Error()}
	}
	for _, cause := range wrong.Causes {
		all = append(all, schemaErrors(cause)...)
	}
	return all[:min(len(all), maxWrong)]
}

// schemaError is the first cause of an error, in one line with the place in the value.
func schemaError(err error) error {
	var wrong *jsonschema.ValidationError
	var inSchema *jsonschema.SchemaValidationError
	if errors.As(err, &inSchema) {
		errors.As(inSchema.Err, &wrong)
	} else {
		errors.As(err, &wrong)
	}
	if wrong == nil {
		return err
	}
	for len(wrong.Causes) > 0 {
		wrong = wrong.Causes[0]
	}
	what := wrong.ErrorKind.LocalizedString(message.NewPrinter(language.English))
	if k, ok := wrong.ErrorKind.(*kind.Type); ok && slices.Contains(k.Want, "string") {
		what += `; write text in quotes, in a shell as NAME='"…"'`
	}
	if at := strings.Join(wrong.InstanceLocation, "."); at != "" {
		what = at + ": " + what
	}
	return errors.New(what)
}
