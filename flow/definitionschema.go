package flow

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"mainstay.dev/mainstay/fleet"
	"mainstay.dev/mainstay/job"
)

// DefinitionSchema is the JSON Schema of definitions, for editors. Read finds more mistakes than it does.
var DefinitionSchema = sync.OnceValue(func() json.RawMessage {
	schema := describe(reflect.TypeFor[job.Definition]())
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "A job of Mainstay"
	text, err := json.MarshalIndent(schema, "", "  ")
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
	reflect.TypeFor[fleet.Duration]():  {"type": "string", "examples": []string{"30s", "1h30m"}},
	reflect.TypeFor[fleet.Priority]():  {"enum": append([]any{1, 2, 3, 4, 5}, texts(fleet.PriorityNames())...)},
	reflect.TypeFor[job.Size]():        {"type": []string{"integer", "string"}, "examples": []string{"64KiB", "1MiB"}},
	reflect.TypeFor[fleet.Port]():      {"type": []string{"integer", "string"}},
	reflect.TypeFor[job.Tolerate](): {
		"anyOf": []object{{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "%$"}},
	},
	reflect.TypeFor[job.Join](): {
		"anyOf": []object{{"enum": []string{"all", "any"}}, {"type": "integer", "minimum": 1}},
	},
	reflect.TypeFor[job.ForEach](): {"anyOf": []object{{"type": "string"}, {
		"type": "object", "required": []string{"count"}, "additionalProperties": false,
		"properties": object{"count": object{"type": "integer", "minimum": 1, "maximum": fleet.MaxElements}}}}},
}

func texts(list []string) (values []any) {
	for _, text := range list {
		values = append(values, text)
	}
	return values
}

// ofStep are the fields of a task that its step or its job has.
var ofStep = map[string]bool{"cluster": true, "tenant": true, "retry": true, "retry_safety": true, "timeout": true,
	"beacon_timeout": true, "start_at": true, "recovery": true, "keep_running": true, "place": true}

func describe(t reflect.Type) object {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if known, ok := described[t]; ok {
		schema := object{}
		for key, value := range known {
			schema[key] = value
		}
		return schema
	}
	switch t.Kind() {
	case reflect.Struct:
		if t == reflect.TypeFor[fleet.Recovery]() {
			return object{"anyOf": []object{{"enum": []fleet.RecoveryMode{fleet.ClusterRecover, fleet.LocalRestart,
				fleet.ManualRecover}}, describeStruct(t)}}
		}
		return describeStruct(t)
	case reflect.Slice:
		return object{"type": "array", "items": describe(t.Elem())}
	case reflect.Map:
		schema := object{"type": "object", "additionalProperties": describe(t.Elem())}
		if t.Elem() == reflect.TypeFor[*job.Step]() {
			schema["propertyNames"], schema["minProperties"] = object{"pattern": stepID.String()}, 1
		}
		return schema
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	}
	return object{"type": "integer"}
}

func describeStruct(t reflect.Type) object {
	isTask := t == reflect.TypeFor[fleet.TaskSpec]()
	properties, required := object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" || name == "-" || isTask && ofStep[name] {
			continue
		}
		field := describe(f.Type)
		// In a task, "${…}" may stand for a text, which then need not have the form that is wanted.
		tags(f.Tag, field, !isTask || name == "type")
		properties[name] = field
		if option == "" {
			required = append(required, name)
		}
	}
	schema := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	if t == reflect.TypeFor[job.Definition]() {
		schema["oneOf"] = []object{
			{"required": []string{"steps"}, "properties": object{"type": object{"const": job.Batch}}},
			{"required": []string{"instances", "type"}, "properties": object{
				"type": object{"not": object{"const": job.Batch}}}},
		}
	}
	if t == reflect.TypeFor[job.Step]() {
		schema["oneOf"] = []object{{"required": []string{"task"}}, {"required": []string{"approve"}},
			{"required": []string{"wait"}}}
	}
	return schema
}

// tags puts in what a field's tags say.
func tags(tag reflect.StructTag, schema object, form bool) {
	if doc := tag.Get("doc"); doc != "" {
		schema["description"] = doc
	}
	if list := tag.Get("enum"); list != "" && form {
		schema["enum"] = strings.Split(list, ",")
	}
	if pattern := tag.Get("pattern"); pattern != "" && form {
		schema["pattern"] = pattern
	}
	for _, bound := range []string{"minimum", "maximum", "maxItems", "maxLength"} {
		if n, err := strconv.Atoi(tag.Get(bound)); err == nil && form {
			schema[bound] = n
		}
	}
}
