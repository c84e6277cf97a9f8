package document

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"mainstay.dev/sdk/api"
)

// Draft is the JSON Schema that schemas are written in.
const Draft = "https://json-schema.org/draft/2020-12/schema"

// Describer makes JSON Schemas of the types that Read decodes into.
type Describer struct {
	// Forms are the schemas of types that read themselves.
	Forms map[reflect.Type]map[string]any
	// Leave reports whether a field of a struct is left out; nil: none is.
	Leave func(in reflect.Type, name string) bool
	// Free reports whether a field may have another form than its tags say; nil: none may.
	Free func(in reflect.Type, name string) bool
	// Refine changes the schema of a type; nil: it stays.
	Refine func(t reflect.Type, schema map[string]any) map[string]any
}

// Describe is the schema of a type. Tags of fields give more: doc, enum, pattern and bounds. A field whose json tag has
// no option is required; another may be null, which leaves it out.
func (d *Describer) Describe(t reflect.Type) map[string]any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	schema := d.describe(t)
	if d.Refine != nil {
		schema = d.Refine(t, schema)
	}
	return schema
}

func (d *Describer) describe(t reflect.Type) map[string]any {
	if known, ok := d.Forms[t]; ok {
		schema := map[string]any{}
		for key, value := range known {
			schema[key] = value
		}
		return schema
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.section(t)
	case reflect.Slice:
		return map[string]any{"type": "array", "items": d.Describe(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": d.Describe(t.Elem())}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	}
	return map[string]any{"type": "integer"}
}

func (d *Describer) section(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" || name == "-" || d.Leave != nil && d.Leave(t, name) {
			continue
		}
		field := d.Describe(f.Type)
		tags(f.Tag, field, d.Free == nil || !d.Free(t, name))
		if option == "" {
			required = append(required, name)
		} else if kind, ok := field["type"].(string); ok && field["enum"] == nil && !bounded(f) {
			field["type"] = []string{kind, "null"}
		}
		properties[name] = field
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

var boundsOfTags = []string{"minimum", "maximum", "maxItems", "maxLength"}

// tags puts in what a field's tags say.
func tags(tag reflect.StructTag, schema map[string]any, form bool) {
	if doc := tag.Get("doc"); doc != "" {
		schema["description"] = doc
	}
	if list := tag.Get("enum"); list != "" && form {
		schema["enum"] = strings.Split(list, ",")
	}
	if pattern := tag.Get("pattern"); pattern != "" && form {
		schema["pattern"] = pattern
	}
	for _, bound := range boundsOfTags {
		if n, err := strconv.Atoi(tag.Get(bound)); err == nil && form {
			schema[bound] = n
		}
	}
}

// bounded reports whether Read wants a value where the field stands.
func bounded(f reflect.StructField) bool {
	_, is := api.BoundsOf(f)
	return is
}

// Indented is a schema as text.
func Indented(title string, schema map[string]any) (json.RawMessage, error) {
	schema["$schema"], schema["title"] = Draft, title
	return json.MarshalIndent(schema, "", "  ")
}
