package flow

import (
	"encoding/json"
	"reflect"
	"sync"
	"time"

	"mainstay.dev/mainstay/internal/config/document"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// DefinitionSchema is the JSON Schema of definitions, for editors. Read finds more mistakes than it does.
var DefinitionSchema = sync.OnceValue(func() json.RawMessage {
	text, err := document.Indented("A job of Mainstay", definitions.Describe(reflect.TypeFor[api.JobDefinition]()))
	if err != nil {
		panic(err) //nolint:forbidigo // the types that are described are in this program
	}
	return text
})

type object = map[string]any

// described are the types that read themselves.
var described = map[reflect.Type]object{
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[time.Time]():       {"type": "string", "format": "date-time"},
	reflect.TypeFor[api.Duration]():    {"type": "string", "examples": []string{"30s", "1h30m"}},
	reflect.TypeFor[api.Priority]():    {"enum": append([]any{1, 2, 3, 4, 5}, texts(api.PriorityNames())...)},
	reflect.TypeFor[api.ByteSize]():    {"type": []string{"integer", "string"}, "examples": []string{"64KiB", "1MiB"}},
	reflect.TypeFor[api.ServicePort](): {"type": []string{"integer", "string"}},
	reflect.TypeFor[api.Tolerance](): {
		"anyOf": []object{{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "%$"}},
	},
	reflect.TypeFor[api.StepJoin](): {
		"anyOf": []object{{"enum": []string{"all", "any"}}, {"type": "integer", "minimum": 1}},
	},
	reflect.TypeFor[api.ForEach](): {"anyOf": []object{{"type": "string"}, {
		"type": "object", "required": []string{"count"}, "additionalProperties": false,
		"properties": object{"count": object{"type": "integer", "minimum": 1, "maximum": api.MaxElements}}}}},
}

func texts(list []string) (values []any) {
	for _, text := range list {
		values = append(values, text)
	}
	return values
}

// ofStep are the fields of a task that its step or its job has.
var ofStep = map[string]bool{"cluster": true, "tenant": true, "retry": true, "retry_safety": true, "timeout": true,
	"beacon_timeout": true, "stop_grace": true, "disconnect_grace": true, "start_at": true, "recovery": true,
	"keep_running": true, "place": true}

// definitions describes the types of definitions.
var definitions = document.Describer{
	Forms: described,
	Leave: func(in reflect.Type, name string) bool { return in == taskSpec && ofStep[name] },
	// In a task, "${…}" may stand for a text, which then need not have the form that is wanted.
	Free: func(in reflect.Type, name string) bool { return in == taskSpec && name != "type" },
	Refine: func(t reflect.Type, schema object) object {
		switch t {
		case reflect.TypeFor[api.Recovery]():
			return object{"anyOf": []object{{"enum": []api.RecoveryMode{api.ClusterRecover, api.LocalRestart,
				api.ManualRecover}}, schema}}
		case reflect.TypeFor[map[string]*api.Step]():
			schema["propertyNames"], schema["minProperties"] = object{"pattern": stepID.String()}, 1
		case reflect.TypeFor[api.JobDefinition]():
			schema["oneOf"] = []object{
				{"required": []string{"steps"}, "properties": object{"type": object{"const": api.JobBatch}}},
				{"required": []string{"instances", "type"}, "properties": object{
					"type": object{"not": object{"const": api.JobBatch}}}},
			}
		case reflect.TypeFor[api.Step]():
			schema["oneOf"] = []object{{"required": []string{"task"}}, {"required": []string{"approve"}},
				{"required": []string{"wait"}}}
		case taskSpec:
			var ofTypes []object
			for _, taskType := range payload.Types() {
				ofTypes = append(ofTypes, object{
					"if": object{"properties": object{"type": object{"const": taskType}}, "required": []string{"type"}},
					"then": object{"properties": object{"payload": payload.TemplateSchema(taskType)},
						"required": []string{"payload"}},
				})
			}
			schema["allOf"] = ofTypes
		}
		return schema
	},
}

var taskSpec = reflect.TypeFor[api.TaskSpec]()
