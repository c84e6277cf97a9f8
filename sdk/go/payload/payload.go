// Package payload defines the payloads of the types of tasks that Mainstay runs itself: exec, mcp-tool and model. Each
// has one definition, which reads it, finds its mistakes, and is its JSON Schema. Payloads of other types are their
// handlers' own.
package payload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"mainstay.dev/sdk/api"
)

// Problem is one thing that is wrong with a payload.
type Problem struct {
	Field string // such as payload.command[0]
	What  string // what is wrong, and what to write instead; it does not repeat what was submitted
}

// Error has the mistakes in a payload, at least one.
type Error struct{ Problems []Problem }

// Error has all problems in one line.
func (e *Error) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.Field + ": " + p.What
	}
	return strings.Join(texts, "; ")
}

// Exec is the payload of a task of type exec: a command to run without a shell.
type Exec struct {
	Command []string          `json:"command"`
	Env     map[string]string `json:"env,omitempty"` // added to what the command inherits
	Dir     string            `json:"dir,omitempty"`

	// Feedback is what was wrong with the results so far, where the command is to correct one, and Note what a person
	// wrote about it. The command has the newest in MAINSTAY_FEEDBACK, as JSON, and the note in MAINSTAY_NOTE.
	Feedback []json.RawMessage `json:"feedback,omitempty"`
	Note     string            `json:"note,omitempty"`
}

// Call is the payload of a task of type mcp-tool: a call of a tool of an MCP server.
type Call struct {
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments,omitempty"` // an object
	// Feedback is what was wrong with the results so far, where the call is a correction.
	Feedback []json.RawMessage `json:"feedback,omitempty"`
	Note     string            `json:"note,omitempty"`
}

// Tool is a tool that a model may ask for. Arguments is the JSON Schema of its arguments.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Arguments   json.RawMessage `json:"arguments,omitempty"`
}

// Model is the payload of a task of type model: a call of a model. Route is put in for each attempt; Feedback and Note
// for corrections.
type Model struct {
	Messages    []api.ModelMessage `json:"messages"`
	Tools       []Tool             `json:"tools,omitempty"`
	MaxTokens   int                `json:"max_tokens,omitempty"`
	Temperature *float64           `json:"temperature,omitempty"`
	Route       api.Route          `json:"route,omitzero"`
	Feedback    []struct {
		Errors []string        `json:"errors"`
		Output json.RawMessage `json:"output"`
	} `json:"feedback,omitempty"`
	Note string `json:"note,omitempty"`
}

// ReadExec reads the payload of a task of type exec.
func ReadExec(value json.RawMessage) (Exec, error) { return read[Exec](api.ExecType, value) }

// ReadCall reads the payload of a task of type mcp-tool.
func ReadCall(value json.RawMessage) (Call, error) { return read[Call](api.ToolTask, value) }

// ReadModel reads the payload of a task of type model.
func ReadModel(value json.RawMessage) (Model, error) { return read[Model](api.ModelTask, value) }

func read[T any](taskType string, value json.RawMessage) (payload T, err error) {
	written, err := Check(taskType, field, value)
	if err != nil {
		return payload, fmt.Errorf("%s: %w", taskType, err)
	}
	if err := json.Unmarshal(written, &payload); err != nil {
		return payload, fmt.Errorf("%s: read the payload: %w", taskType, err)
	}
	return payload, nil
}

// field is where a task has its payload.
const field = "payload"

// Check checks the payload of a task. It returns it with numbers, true and false as text where only text fits. at is
// its name in problems. A payload of a type that is not defined here passes. The error is an *Error.
func Check(taskType, at string, value json.RawMessage) (json.RawMessage, error) {
	s := shapes[taskType]
	if s == nil {
		return value, nil
	}
	r := &reader{}
	r.payload(s, taskType, at, value)
	if len(r.problems) > 0 {
		return nil, &Error{r.problems}
	}
	return r.out.Bytes(), nil
}

// Template checks the known parts of a payload before the expressions in it, ${…}, are evaluated. taken are the fields,
// below at, where a number, true or false stands for text.
func Template(taskType, at string, value json.RawMessage) (taken []string, problems []Problem) {
	s := shapes[taskType]
	if s == nil {
		return nil, nil
	}
	r := &reader{template: true}
	r.payload(s, taskType, at, value)
	return r.taken, r.problems
}

// Task checks the payload of a task and what its type needs beside it, and turns values into text where only text fits.
// The error is an *Error.
func Task(spec *api.TaskSpec) error {
	if shapes[spec.Type] == nil {
		return nil
	}
	written, err := Check(spec.Type, field, spec.Payload)
	if err != nil {
		return err
	}
	if wrong := Routes(spec.Type, spec.Routes, spec.Payload); wrong != "" {
		return &Error{[]Problem{{"routes", wrong}}}
	}
	spec.Payload = written
	return nil
}

// Routes checks the routes of a task: one that calls a model needs some. Its answer is the mistake; empty: none.
func Routes(taskType string, routes []api.Route, value json.RawMessage) string {
	var own struct{ Route json.RawMessage }
	err := json.Unmarshal(value, &own) // of an expression, which may give a route
	if taskType != api.ModelTask || len(routes) > 0 || err != nil || own.Route != nil {
		return ""
	}
	return "is missing: name the providers and models to ask, like [{provider: openai, model: gpt-5}]"
}

// Elements checks the payloads of an array's elements, and writes them as Task does. Without items all have the payload
// of the task.
func Elements(spec *api.TaskSpec, items []json.RawMessage) error {
	if shapes[spec.Type] == nil {
		return nil
	}
	var err error
	if len(items) == 0 {
		spec.Payload, err = Check(spec.Type, field, spec.Payload)
		return err
	}
	for i := range items {
		if items[i], err = Check(spec.Type, fmt.Sprintf("items[%d]", i), items[i]); err != nil {
			return err
		}
	}
	return nil
}

// shapes are the payloads by the type of task.
var shapes = map[string]*shape{api.ExecType: execShape(), api.ToolTask: callShape(), api.ModelTask: modelShape()}

// Form is the Go type of a type's payload; nil: it is not defined here.
func Form(taskType string) reflect.Type { return forms[taskType] }

var forms = map[string]reflect.Type{api.ExecType: reflect.TypeFor[Exec](), api.ToolTask: reflect.TypeFor[Call](),
	api.ModelTask: reflect.TypeFor[Model]()}

// examples are what a payload looks like, for those who have none.
var examples = map[string]string{
	api.ExecType:  "{command: [make, test]}",
	api.ToolTask:  "{server: tracker, tool: search, arguments: {query: open}}",
	api.ModelTask: "{messages: [{role: user, content: hello}]}",
}

// payload reads a whole payload.
func (r *reader) payload(s *shape, taskType, at string, value json.RawMessage) {
	switch value = trim(value); {
	case len(value) == 0 || string(value) == "null":
		r.wrong(at, "is missing: a task of type %s has one like %s", taskType, examples[taskType])
	case !json.Valid(value):
		r.wrong(at, "is not JSON")
	case value[0] == '"' && looksLikeJSON(value):
		r.wrong(at, "is JSON in quotes: send the object itself, without quotes around it and without backslashes")
	case value[0] != '{' && !r.unknown(value):
		r.wrong(at, "must be like %s, and is %s", examples[taskType], kindOf(value))
	default:
		r.value(s, at, value)
	}
}

func looksLikeJSON(value json.RawMessage) bool {
	var text string
	return json.Unmarshal(value, &text) == nil && strings.HasPrefix(strings.TrimSpace(text), "{")
}

const (
	// maxArgument bounds an argument of a command and a variable with its name, in bytes: Linux starts no command with
	// a longer one, and the last byte is a zero.
	maxArgument = 128<<10 - 1
	tooLong     = "Linux starts no command with so long an argument or variable: write it to a file, or let the command fetch it"
	zeroByte    = "has a zero byte, which no command can be given: leave it out"
)

func execShape() *shape {
	plain := textRule{most: maxArgument, tooLong: tooLong, noZero: true, scalar: true}
	program := plain
	program.least, program.empty = 1, "is empty: name the program to run"
	return record(
		required("command", "The program and its arguments, each a word. No shell reads them.",
			list(text(plain), listRule{first: text(program), least: 1,
				wrong: `a command is a list of words: [make, test], or [sh, -c, "make test"]`})),
		optional("env", "Variables for the command, added to those that it inherits. A name and its value have at most 131,070 bytes.",
			dictionary(text(plain), dictionaryRule{name: `^[^=\x00]+$`, most: maxArgument - 1,
				badName: "a name of a variable must not be empty, or have = or a zero byte in it", tooLong: tooLong,
				wrong: "variables are names and values, like {PORT: 8080}"})),
		optional("dir", "The folder to run it in.", text(textRule{noZero: true, scalar: true, most: 4095,
			tooLong: "no folder has so long a name"})),
		feedback(), note(),
	)
}

func callShape() *shape {
	const wrong = "must be the name of a server, as the agents' operator wrote it: a-z, 0-9, ., _ and -"
	return record(
		required("server", "The server that has the tool, as agents name it. The agent has the capability mcp.SERVER.",
			text(textRule{least: 1, empty: wrong, most: api.MaxIDLength - len(api.ToolCapability("")),
				tooLong: wrong,
				pattern: idPattern, wrong: wrong})),
		required("tool", "The tool.", text(textRule{least: 1, empty: "is empty: name the tool to call"})),
		optional("arguments", "The arguments of the call.", anObject("arguments are names and values, like {query: open}")),
		feedback(), note(),
	)
}

const idPattern = `^[a-z0-9][a-z0-9._-]*$`

func modelShape() *shape {
	const provider = "must be the name of a provider, as agents name it: a-z, 0-9, ., _ and -"
	name := textRule{least: 1, empty: "is empty: give it a name"}
	call := record(required("id", "The id of the call.", text(textRule{})),
		required("name", "The tool.", text(textRule{})), optional("arguments", "What the model wrote.", anything()))
	message := record(
		required("role", "Who says it.", text(textRule{words: []string{"system", "user", "assistant", "tool"}})),
		required("content", "What is said.", text(textRule{scalar: true})),
		optional("tool_calls", "Of the assistant: the calls that it asks for.",
			list(call, listRule{wrong: "calls are a list, like [{id: c-1, name: search, arguments: {}}]"})),
		optional("tool_call_id", "Of a tool: the call that it answers.", text(textRule{})),
		optional("failed", "Of a tool: the call brought no result.", boolean()),
	)
	tool := record(required("name", "Its name.", text(name)), optional("description", "What it does, for the model.",
		text(textRule{scalar: true})), optional("arguments", "The JSON Schema of its arguments. Left out: any object.",
		anObject("is a JSON Schema, like {type: object, properties: {…}}")),
		optional("server", "Put in for the tools of a step.", text(textRule{})),
		optional("safety", "Put in for the tools of a step.", text(textRule{})))
	return record(
		required("messages", "The conversation.", list(message, listRule{least: 1,
			wrong: "messages are a list, like [{role: user, content: hello}]"})),
		optional("tools", "What the model may ask for.",
			list(tool, listRule{wrong: "tools are a list, like [{name: search}]"})),
		optional("max_tokens", "The most tokens that it may answer.", whole(1)),
		optional("temperature", "How freely it answers.", number(0)),
		optional("route", "The provider and model to ask, where the task has no routes; each attempt has its route here.",
			record(
				required("provider", "The provider, as agents name it.", text(textRule{least: 1, empty: provider,
					most: api.MaxIDLength, tooLong: provider, pattern: idPattern, wrong: provider})),
				required("model", "The model, as the provider names it.", text(name)),
				optional("window", "How many tokens a conversation may have.", whole(0)))),
		optional("feedback", "What was wrong with the answers so far; put in for corrections.",
			list(feedbackOfModel(), listRule{wrong: "is put in for corrections: leave it out"})), note(),
	)
}

// feedback is the member that a correction adds to any payload.
func feedback() member {
	return optional("feedback", "What was wrong with the results so far; put in for corrections.",
		list(anything(), listRule{wrong: "is put in for corrections: leave it out"}))
}

func feedbackOfModel() *shape {
	return record(optional("attempt", "The attempt that brought the result.", whole(0)),
		optional("errors", "What is wrong with it.", list(text(textRule{}), listRule{wrong: "errors are a list of texts"})),
		optional("output", "The result.", anything()), optional("at", "When.", text(textRule{})))
}

func note() member {
	return optional("note", "What a person wrote about the results so far.", text(textRule{scalar: true}))
}

func required(name, doc string, s *shape) member { return member{name, doc, s, true} }

func optional(name, doc string, s *shape) member { return member{name, doc, s, false} }

// kindOf says of JSON what it is.
func kindOf(value json.RawMessage) string {
	return cmp.Or(map[byte]string{'"': "text", '{': "an object", '[': "a list", 't': "true", 'f': "false",
		'n': "null"}[value[0]], "a number")
}

// Types are the types of tasks whose payloads are defined here.
func Types() []string { return slices.Sorted(maps.Keys(shapes)) }

// Schema is the JSON Schema of a type's payload; nil: it is not defined here. It accepts what Check does, but counts
// characters where Check counts bytes.
func Schema(taskType string) map[string]any {
	s := shapes[taskType]
	if s == nil {
		return nil
	}
	schema := maps.Clone(s.schema)
	schema["title"] = "The payload of a task of type " + taskType
	return schema
}

// TemplateSchema is Schema of a payload whose values may be expressions, ${…}.
func TemplateSchema(taskType string) map[string]any {
	s := shapes[taskType]
	if s == nil {
		return nil
	}
	return templated(s.schema)
}
