package flow

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
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
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource("inputs.json", value); err != nil {
		return nil, err
	}
	compiled, err := compiler.Compile("inputs.json")
	return compiled, schemaError(err)
}

func decodeForSchema(data json.RawMessage) (any, error) {
	if len(data) == 0 {
		data = json.RawMessage(`{}`)
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(data))
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
	if at := strings.Join(wrong.InstanceLocation, "."); at != "" {
		what = at + ": " + what
	}
	return errors.New(what)
}
