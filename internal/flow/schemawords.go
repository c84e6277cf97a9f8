package flow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mainstay.dev/sdk/spelling"
)

// The words of JSON Schema: those that hold a schema, or a list of them; those that hold schemas by name; and others.
var (
	schemaOf = strings.Fields("items additionalItems additionalProperties contains contentSchema not if then else " +
		"propertyNames unevaluatedItems unevaluatedProperties allOf anyOf oneOf prefixItems")
	schemasOf   = strings.Fields("properties patternProperties $defs definitions dependentSchemas dependencies")
	schemaWords = slices.Concat(schemaOf, schemasOf, strings.Fields("type enum const required format pattern default "+
		"minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength minItems maxItems uniqueItems "+
		"minContains maxContains minProperties maxProperties dependentRequired contentEncoding contentMediaType "+
		"title description examples deprecated readOnly writeOnly"))
)

// words reports the words of a schema that mean nothing in it: at its root all, which mostly are names that belong in
// properties; below it those that are spelt nearly like one that does.
func (c *checker) words(at string, schema json.RawMessage) {
	value, _ := decodeForSchema(schema) // it was compiled
	c.wordsOf(at, value, true)
}

func (c *checker) wordsOf(at string, value any, root bool) {
	if list, ok := value.([]any); ok {
		for i, item := range list {
			c.wordsOf(fmt.Sprintf("%s[%d]", at, i), item, false)
		}
	}
	object, _ := value.(map[string]any)
	for _, word := range slices.Sorted(maps.Keys(object)) {
		near := spelling.Nearest(word, schemaWords)
		switch field := at + "." + word; {
		case slices.Contains(schemaOf, word):
			c.wordsOf(field, object[word], false)
		case slices.Contains(schemasOf, word):
			schemas, _ := object[word].(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(schemas)) {
				c.wordsOf(field+"."+name, schemas[name], false)
			}
		case slices.Contains(schemaWords, word), strings.HasPrefix(word, "$"), strings.HasPrefix(word, "x-"):
		case near != "":
			c.report(field, "is no word of JSON Schema; did you mean %s?", near)
		case root:
			c.report(field, "is no word of JSON Schema: a name belongs in properties, as in {properties: {%s: {type: string}}}", word)
		}
	}
}
