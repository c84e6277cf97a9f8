package flow

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPayloadsOfStepsAreChecked names the field and the line of what an agent could not run.
func TestPayloadsOfStepsAreChecked(t *testing.T) {
	t.Parallel()
	const step = "steps:\n  a:\n    task:\n      type: "
	for name, c := range map[string]struct{ text, want string }{
		"command is text": {step + "exec\n      payload:\n        command: make test\n",
			`f.yaml:8:9: steps.a.task.payload.command: a command is a list of words: [make, test], or [sh, -c, "make test"]`},
		"misspelt": {step + "exec\n      payload: {comand: [make]}\n",
			"f.yaml:7:17: steps.a.task.payload.comand: there is no such field; did you mean command?"},
		"a null": {step + "exec\n      payload:\n        command:\n        - echo\n        -\n",
			`f.yaml:10:10: steps.a.task.payload.command[1]: is null, and must be text: write "" for an empty one, or leave it out`},
		"a list in env": {step + "exec\n      payload: {command: [make], env: [A=1]}\n",
			"f.yaml:7:34: steps.a.task.payload.env: variables are names and values, like {PORT: 8080}"},
		"no payload": {step + "exec\n", "f.yaml:5:5: steps.a.task.payload: is missing: a task of type exec has one like {command: [make, test]}"},
		"a tool": {step + "mcp-tool\n      payload: {server: s, tool: t, arguments: [1]}\n",
			"f.yaml:7:37: steps.a.task.payload.arguments: arguments are names and values, like {query: open}"},
		"a model": {step + "model\n      payload: {messages: hello}\n",
			"f.yaml:5:5: steps.a.task.routes: is missing: name the providers and models to ask, like [{provider: openai, model: gpt-5}]\n" +
				"f.yaml:7:17: steps.a.task.payload.messages: messages are a list, like [{role: user, content: hello}]"},
		"a check": {"steps:\n  a:\n    task: {type: echo}\n    check: {task: {type: exec, payload: {command: test}}}\n",
			`f.yaml:6:42: steps.a.check.task.payload.command: a command is a list of words: [make, test], or [sh, -c, "make test"]`},
		"an instance": {"type: service\ninstances:\n  task: {type: exec, payload: {command: serve}}\n",
			`f.yaml:5:32: instances.task.payload.command: a command is a list of words: [make, test], or [sh, -c, "make test"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Read("f.yaml", []byte(head+c.text))
			require.EqualError(t, err, c.want)
		})
	}
}

// TestTextIsTakenAsTheDocumentHasIt also of what JSON cannot hold, and again of the definition as it is kept.
func TestTextIsTakenAsTheDocumentHasIt(t *testing.T) {
	t.Parallel()
	const want = `{"command":["sleep","1","1.10","true","010","0x1F","1_000","+5",".5","12e4","2026-01-02","${inputs.n}"],` +
		`"env":{"ZIP":"01234","V":"1.10","ON":"True","${x}":"1"},"dir":"7"}`
	d, plan, err := Read("f.yaml", []byte(head+`steps:
  a:
    task:
      type: exec
      payload:
        command: [sleep, 1, 1.10, true, 010, 0x1F, 1_000, +5, .5, 12e4, 2026-01-02, "${inputs.n}"]
        env: {ZIP: 01234, V: 1.10, ON: True, "${x}": 1}
        dir: 7
`))
	require.NoError(t, err)
	require.Equal(t, want, string(plan.Steps[0].Task.Payload))
	text, err := json.Marshal(d)
	require.NoError(t, err)
	_, plan, err = Read("", text)
	require.NoError(t, err)
	require.Equal(t, want, string(plan.Steps[0].Task.Payload))
	_, plan, err = Read("f.json", []byte(`{"job":"j","cluster":"c","steps":{"a":{"task":{"type":"exec","payload":
		{"command":["a",1.10,1E400,12345678901234567890]}}}}}`))
	require.NoError(t, err)
	require.Equal(t, `{"command":["a","1.10","1E400","12345678901234567890"]}`, string(plan.Steps[0].Task.Payload))
}
