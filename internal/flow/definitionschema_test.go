package flow

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// TestTheSchemaOfDefinitions accepts the examples, and finds mistakes that an editor should show.
func TestTheSchemaOfDefinitions(t *testing.T) {
	t.Parallel()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(DefinitionSchema()))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("job.json", document))
	schema, err := compiler.Compile("job.json")
	require.NoError(t, err)
	check := func(text string) error {
		var value any
		require.NoError(t, yaml.Unmarshal([]byte(text), &value))
		return schema.Validate(value)
	}
	files, err := filepath.Glob("../../examples/jobs/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, check(string(text)), file)
	}
	const head = "job: a\ncluster: default\n"
	require.NoError(t, check(head+"steps: {a: {task: {type: echo, agent: '${inputs.agent}'}, join: any, tolerate: 1%}}"))
	require.NoError(t, check(head+"recovery: local_restart\nsteps: {a: {task: {type: echo}, recovery: {mode: manual_recover}}}"))
	const step = head + "steps: {a: {task: {type: "
	for _, text := range []string{
		step + "exec, payload: {command: [sleep, 1], env: {PORT: 8080}}}}}",
		step + "exec, payload: {command: ['${inputs.program}', '-${inputs.n}'], env: '${inputs.env}'}}}}",
		step + "exec, payload: '${inputs.all}'}}}",
		step + "mine, payload: {comand: 7}}}}",
		step + "model, routes: [{provider: p, model: m}], payload: {messages: [{role: user, content: '${inputs.q}'}], max_tokens: '${inputs.n}'}}}}",
	} {
		require.NoError(t, check(text), text)
		_, _, err := Read("f.yaml", []byte(text))
		require.NoError(t, err, text)
	}
	for name, text := range map[string]string{
		"command is text":   step + "exec, payload: {command: make}}}}",
		"a part of a text":  step + "exec, payload: {command: 'make ${inputs.a}'}}}}",
		"misspelt":          step + "exec, payload: {comand: [make]}}}}",
		"null in a command": step + "exec, payload: {command: [make, null]}}}}",
		"no payload":        step + "exec}}}",
		"a tool":            step + "mcp-tool, payload: {server: s, tool: t, arguments: [1]}}}}",
		"a role":            step + "model, routes: [{provider: p, model: m}], payload: {messages: [{role: usr, content: x}]}}}}",
		"recovery":          head + "recovery: {mod: x}\nsteps: {a: {task: {type: echo}}}",
		"no steps":          head,
		"no cluster":        "job: a\nsteps: {a: {task: {type: echo}}}",
		"unknown key":       head + "steps: {a: {task: {type: echo}, aftr: [b]}}",
		"old name":          head + "steps: {a: {task: {type: echo}, complete_job: true}}",
		"step's name":       head + "steps: {A: {task: {type: echo}}}",
		"two kinds":         head + "steps: {a: {task: {type: echo}, wait: {for: 5s}}}",
		"no kind":           head + "steps: {a: {after: []}}",
		"cluster of a task": head + "steps: {a: {task: {type: echo, cluster: x}}}",
		"no type":           head + "steps: {a: {task: {payload: 1}}}",
		"service":           head + "type: service\nsteps: {a: {task: {type: echo}}}",
		"safety":            head + "safety: idempotant\nsteps: {a: {task: {type: echo}}}",
		"after":             head + "steps: {a: {task: {type: echo}, after: b}}",
		"elements":          head + "steps: {a: {task: {type: echo}, for_each: {count: 100001}}}",
		"duration":          head + "steps: {a: {task: {type: echo}, timeout: 30}}",
	} {
		require.Error(t, check(text), name)
		_, _, err := Read("f.yaml", []byte(text))
		require.Error(t, err, name)
	}
}
