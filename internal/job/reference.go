package job

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"mainstay.dev/sdk/api"
)

// IsReference reports whether a text is one expression that only names a value, which Fill looks up:
// ${inputs.bucket}, ${steps.list.output} or ${steps.list.output.keys}.
func IsReference(text string) bool { return reference(text) != nil }

// reference is the path that a text names; nil: the text is no reference.
func reference(text string) []string {
	name, opened := strings.CutPrefix(text, "${")
	name, closed := strings.CutSuffix(name, "}")
	path := strings.Split(name, ".")
	if !opened || !closed || slices.ContainsFunc(path, func(part string) bool { return !isName(part) }) ||
		path[0] == "inputs" && len(path) < 2 ||
		path[0] != "inputs" && (path[0] != "steps" || len(path) < 3 || path[2] != "output") {
		return nil
	}
	return path
}

func isName(part string) bool {
	return part != "" && strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "" &&
		(part[0] < '0' || part[0] > '9')
}

// Fill is a task with the values that its references name among the inputs and the steps of a run. ok is false if there
// is no value, the task would not be valid with it, or the budget is used up; the evaluation of the expressions then
// finds the mistake, or fills it in. The budget is how many bytes may be read and filled in: references may name one
// large value thousands of times.
//
//workflowcheck:ignore
func Fill(task *api.TaskSpec, inputs json.RawMessage, steps []api.StepEntry, budget *int) (filled *api.TaskSpec,
	ok bool) {
	text, err := json.Marshal(task)
	if err != nil {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil, false
	}
	f := filler{inputs: inputs, steps: steps, objects: map[string]object{}, budget: budget}
	value = f.fill(value)
	if f.missing {
		return nil, false
	}
	text, err = json.Marshal(value)
	filled = &api.TaskSpec{}
	if err != nil || json.Unmarshal(text, filled) != nil {
		return nil, false
	}
	filled.Payload = PayloadTexts(filled.Type, filled.Payload)
	if filled.Validate() != nil ||
		api.CheckJSONDepth(filled.Payload, api.MaxJSONValueDepth) != nil {
		return nil, false
	}
	return filled, true
}

// filler replaces references in JSON values.
type filler struct {
	inputs  json.RawMessage
	steps   []api.StepEntry
	objects map[string]object // those that were read, by their paths
	budget  *int
	missing bool // a reference names no value, or the budget is used up
}

type object = map[string]json.RawMessage

func (f *filler) fill(value any) any {
	switch v := value.(type) {
	case string:
		if path := reference(v); path != nil {
			return f.find(path)
		}
	case []any:
		for i := range v {
			v[i] = f.fill(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = f.fill(v[name])
		}
	}
	return value
}

// find is the value at a path.
func (f *filler) find(path []string) json.RawMessage {
	if f.missing {
		return nil
	}
	value, rest := f.inputs, path[1:]
	if path[0] == "steps" {
		i := slices.IndexFunc(f.steps, func(e api.StepEntry) bool { return e.Step == path[1] })
		if i < 0 {
			f.missing = true
			return nil
		}
		value, rest = f.steps[i].Output, path[3:]
	}
	for i, name := range rest {
		at := strings.Join(path[:len(path)-len(rest)+i], ".")
		if f.objects[at] == nil {
			var read object
			f.missing = f.missing || !f.spend(len(value)) || json.Unmarshal(value, &read) != nil
			f.objects[at] = read
		}
		value = f.objects[at][name]
		f.missing = f.missing || value == nil
	}
	if f.missing = f.missing || !f.spend(len(value)); f.missing {
		return nil
	}
	return value
}

func (f *filler) spend(bytes int) (left bool) {
	*f.budget -= bytes
	return *f.budget >= 0
}
