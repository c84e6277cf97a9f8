package mesh

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"mainstay.dev/sdk/api"
)

// Assignment is a task as an event's data has it.
type Assignment struct {
	ID string `json:"id"`
	api.TaskSpec
}

// sent are names that senders have for fields of an assignment.
var sent = map[string]string{"task_id": "id", "tenant_id": "tenant", "agent_id": "agent"}

// ofEnvelope are members of the data that say again what the event's attributes say, and nothing about the task.
var ofEnvelope = strings.Fields("event_id event_type correlation_id causation_id trace_id occurred_at schema_version " +
	"execution_id step_id")

// commands are types of events whose data is a task of a certain type, which the data may leave out.
var commands = map[string]string{"InvokeModel": api.ModelTask, "InvokeTool": api.ToolTask}

// ReadAssignment is the task in an event's data, with its full id. Without an id of its own it has that of the event.
// Unknown fields are refused, because a task must not lose what its sender asked for.
func ReadAssignment(e *api.Envelope, data json.RawMessage) (id string, spec api.TaskSpec, err error) {
	var a Assignment
	plain, err := plainNames("", data, reflect.TypeFor[Assignment]())
	if err = cmp.Or(api.CheckJSONKeys(data), err); err == nil {
		err = api.CheckGiven(plain, reflect.TypeFor[Assignment]())
	}
	if err != nil {
		return "", spec, fmt.Errorf("its data is no task: %w", err)
	}
	if err := json.Unmarshal(plain, &a); err != nil {
		return "", spec, errors.New("its data is no task: send an object with type, cluster and payload")
	}
	if implied := commands[e.Attr("type")]; implied != "" {
		if a.Type = cmp.Or(a.Type, implied); a.Type != implied {
			return "", spec, fmt.Errorf("type: an event %s asks for a task of type %s: leave the type out",
				e.Attr("type"), implied)
		}
	}
	_, own := api.CutTenant(InboundID(e))
	tenant, name := api.CutTenant(cmp.Or(a.ID, "e-"+own))
	spec = a.TaskSpec
	spec.Tenant = cmp.Or(spec.Tenant, e.Tenant())
	for _, other := range []string{spec.Tenant, cmp.Or(tenant, spec.Tenant)} {
		if err := AssertTenant(e.Tenant(), other); err != nil {
			return "", spec, err
		}
	}
	spec.StartAt, spec.ExpiresAt, spec.Labels = spec.StartAt.UTC(), spec.ExpiresAt.UTC(), LabelOf(e, spec.Labels)
	return api.Qualify(spec.Tenant, name), spec, cmp.Or(spec.Validate(), api.ValidateTaskID(name))
}

// plainNames is JSON text that is to be read into t, with the names of t's fields where it has them in camelCase. Text
// of another form is for its reader to refuse.
func plainNames(at string, text json.RawMessage, t reflect.Type) (json.RawMessage, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && t != reflect.TypeFor[json.RawMessage]():
		var elements []json.RawMessage
		if json.Unmarshal(text, &elements) != nil || elements == nil {
			return text, nil //nolint:nilerr // its reader refuses it
		}
		for i := range elements {
			var err error
			if elements[i], err = plainNames(fmt.Sprintf("%s[%d].", strings.TrimSuffix(at, "."), i), elements[i],
				t.Elem()); err != nil {
				return nil, err
			}
		}
		return json.Marshal(elements)
	case t.Kind() != reflect.Struct && t.Kind() != reflect.Map:
		return text, nil
	}
	var given map[string]json.RawMessage
	if json.Unmarshal(text, &given) != nil || given == nil {
		return text, nil //nolint:nilerr // its reader refuses it
	}
	plain := map[string]json.RawMessage{}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if t.Kind() == reflect.Map {
			member, err := plainNames(at+shown(key)+".", given[key], t.Elem())
			if err != nil {
				return nil, err
			}
			plain[key] = member
			continue
		}
		name := snake(key)
		if at == "" {
			if slices.Contains(ofEnvelope, name) {
				continue
			}
			name = cmp.Or(sent[name], name)
		}
		field, known := api.FieldAt(t, name)
		known = known && !strings.ContainsAny(name, ".[")
		_, twice := plain[name]
		switch {
		case !known:
			return nil, &api.FieldError{Field: at + shown(key), Err: errors.New(
				"is no field of a task: leave it out, or write it as POST /tasks has it")}
		case twice:
			return nil, &api.FieldError{Field: at + name, Err: api.ErrJSONKeyTwice}
		}
		var err error
		if plain[name], err = plainNames(at+name+".", given[key], field.Type); err != nil {
			return nil, err
		}
	}
	return json.Marshal(plain)
}

// snake is a name in camelCase as fields here have it: retrySafety is retry_safety.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// shown is a key as a message may show it.
func shown(key string) string {
	if len(key) > 64 || api.ValidateLine("", key, 64) != nil {
		return "a key"
	}
	return key
}
