package job

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"mainstay.dev/sdk/payload"
)

// Text is a value as text: text as it is, anything else as JSON, numbers digit for digit.
func Text(value any) (string, error) {
	if raw, isRaw := value.(json.RawMessage); isRaw {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			return "", err
		}
	}
	if text, isText := value.(string); isText {
		return text, nil
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// PayloadTexts is a payload with text wherever only text fits, such as the words of a command.
func PayloadTexts(taskType string, value json.RawMessage) json.RawMessage {
	if t := payload.Form(taskType); t != nil {
		return Texts(value, t)
	}
	return value
}

// Texts is JSON with text wherever a value of a type takes only that. null stays: it stands for nothing.
//
//workflowcheck:ignore
func Texts(value json.RawMessage, t reflect.Type) json.RawMessage {
	if value = bytes.TrimSpace(value); len(value) == 0 || string(value) == "null" ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return value
	}
	var changed any
	switch t.Kind() {
	case reflect.Pointer:
		return Texts(value, t.Elem())
	case reflect.String:
		text, err := Text(value)
		if value[0] == '"' || err != nil {
			return value
		}
		changed = text
	case reflect.Slice:
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil {
			return value
		}
		for i := range list {
			list[i] = Texts(list[i], t.Elem())
		}
		changed = list
	case reflect.Map, reflect.Struct:
		var members map[string]json.RawMessage
		if json.Unmarshal(value, &members) != nil {
			return value
		}
		for name, member := range members {
			if inner := memberType(t, name); inner != nil {
				members[name] = Texts(member, inner)
			}
		}
		changed = members
	default:
		return value
	}
	text, err := json.Marshal(changed)
	if err != nil {
		return value
	}
	return text
}

// memberType is the type of a member of a map or a struct; nil for one that is not known.
func memberType(t reflect.Type, name string) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	for _, f := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return f.Type
		}
	}
	return nil
}
