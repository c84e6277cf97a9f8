package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mainstay.dev/sdk/payload"
)

// Values that are handed on as the assistant wrote them: their numbers keep all digits.
type (
	taskPayload json.RawMessage
	runInputs   json.RawMessage
)

// UnmarshalJSON keeps the text.
func (p *taskPayload) UnmarshalJSON(text []byte) error {
	*p = bytes.Clone(text)
	return nil
}

// UnmarshalJSON keeps the text.
func (r *runInputs) UnmarshalJSON(text []byte) error {
	*r = bytes.Clone(text)
	return nil
}

// schemaOf is the schema of a tool's arguments.
func schemaOf[In any]() *jsonschema.Schema {
	schema, err := jsonschema.For[In](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[taskPayload](): payloadSchema(),
		reflect.TypeFor[runInputs]():   {Types: []string{"object", "string"}},
	}})
	if err != nil {
		panic(err) //nolint:forbidigo // the types are in this program
	}
	return schema
}

// payloadSchema shows what payloads look like. It allows any value: other types have payloads of their own.
func payloadSchema() *jsonschema.Schema {
	schema := &jsonschema.Schema{}
	for _, taskType := range payload.Types() {
		text, err := json.Marshal(payload.Schema(taskType))
		one := &jsonschema.Schema{}
		if err == nil {
			err = json.Unmarshal(text, one)
		}
		if err != nil {
			panic(err) //nolint:forbidigo // the schemas are in this program
		}
		schema.AnyOf = append(schema.AnyOf, one)
	}
	schema.AnyOf = append(schema.AnyOf, &jsonschema.Schema{Title: "The payload of a task of another type",
		Description: "Any JSON that the handler of the type wants."})
	return schema
}

// exact are the arguments of a call as they came. The SDK's own have numbers as float64.
func exact[In any](arguments json.RawMessage) (in In, err error) {
	if len(arguments) == 0 {
		return in, nil
	}
	if err := json.Unmarshal(arguments, &in); err != nil {
		return in, fmt.Errorf("read the arguments: %w", err)
	}
	return in, nil
}

// refuseLarge refuses arguments with a number that the SDK, which checks them as float64, cannot read.
func refuseLarge(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		if call, isCall := request.(*sdk.CallToolRequest); isCall {
			var value any
			err := json.Unmarshal(call.Params.Arguments, &value)
			if large, is := errors.AsType[*json.UnmarshalTypeError](err); is {
				return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(
					"the %s is too large: send the payload, or the inputs, as a text that holds the JSON", large.Value)}}}, nil
			}
		}
		return next(ctx, method, request)
	}
}

// unquoted is the object or list in a text, as assistants write it now and then; another value is as it was.
func unquoted(value json.RawMessage) json.RawMessage {
	var text string
	if len(value) == 0 || string(value) == "null" {
		return nil
	}
	if json.Unmarshal(value, &text) != nil {
		return value
	}
	inner := bytes.TrimSpace([]byte(text))
	if json.Valid(inner) && (inner[0] == '{' || inner[0] == '[') {
		return inner
	}
	return value
}
