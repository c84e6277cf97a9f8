package payload_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/payload"
)

// documents are good and bad payloads: what is wrong with each, or nothing.
var documents = []struct{ taskType, text, wrong string }{
	{"exec", `{"command":["make","test"]}`, ""},
	{"exec", `{"command":["sleep",1],"env":{"PORT":8080,"V":1.10,"ON":true},"dir":"/tmp"}`, ""},
	{"exec", `{"command":["echo",""],"env":{},"dir":"","note":"n","feedback":[{"errors":["x"]},1]}`, ""},
	{"exec", `{"command":["a"],"env":null,"dir":null,"feedback":null,"note":null}`, ""},
	{"exec", `{"command":["a",-1.5e400,true,false,12345678901234567890]}`, ""},
	{"exec", `{"command":[7],"env":{"a.b":"=","-":"x"}}`, ""},
	{"exec", ``, `payload: is missing: a task of type exec has one like {command: [make, test]}`},
	{"exec", `null`, `payload: is missing`},
	{"exec", `{}`, `payload: has no command: the program and its arguments, each a word. No shell reads them`},
	{"exec", `{"command":null}`, `payload: has no command`},
	{"exec", `[1]`, `payload: must be like {command: [make, test]}, and is a list`},
	{"exec", `7`, `payload: must be like {command: [make, test]}, and is a number`},
	{"exec", `"make test"`, `payload: must be like {command: [make, test]}, and is text`},
	{"exec", `"{\"command\": [\"make\"]}"`, `payload: is JSON in quotes: send the object itself, without quotes`},
	{"exec", `{"command":"make test"}`,
		`payload.command: a command is a list of words: [make, test], or [sh, -c, "make test"]`},
	{"exec", `{"command":{}}`, `payload.command: a command is a list of words`},
	{"exec", `{"command":[]}`, `payload.command: is empty: a command is a list of words`},
	{"exec", `{"command":[""]}`, `payload.command[0]: is empty: name the program to run`},
	{"exec", `{"command":["a",null]}`, `payload.command[1]: is null, and must be text: write "" for an empty one`},
	{"exec", `{"command":["a",["b"]]}`, `payload.command[1]: must be text, and is a list`},
	{"exec", `{"command":["a",{}]}`, `payload.command[1]: must be text, and is an object`},
	{"exec", `{"command":["a","b\u0000c"]}`, `payload.command[1]: has a zero byte, which no command can be given`},
	{"exec", `{"command":["a"],"env":{"A":"b\u0000c"}}`, `payload.env.A: has a zero byte`},
	{"exec", `{"command":["a"],"env":{"A":null}}`, `payload.env.A: is null, and must be text`},
	{"exec", `{"command":["a"],"env":{"A":[1]}}`, `payload.env.A: must be text, and is a list`},
	{"exec", `{"command":["a"],"env":{"":"x"}}`, `payload.env: a name of a variable must not be empty`},
	{"exec", `{"command":["a"],"env":{"A=B":"x"}}`, `payload.env: a name of a variable must not be empty, or have =`},
	{"exec", `{"command":["a"],"env":{"A\u0000":"x"}}`, `a name of a variable must not be empty, or have = or a zero`},
	{"exec", `{"command":["a"],"env":["A=1"]}`, `payload.env: variables are names and values, like {PORT: 8080}`},
	{"exec", `{"command":["a"],"dir":["x"]}`, `payload.dir: must be text, and is a list`},
	{"exec", `{"command":["a"],"dir":"a\u0000"}`, `payload.dir: has a zero byte`},
	{"exec", `{"comand":["a"]}`, `payload.comand: there is no such field; did you mean command?`},
	{"exec", `{"Command":["a"]}`, `payload.Command: there is no such field; did you mean command?`},
	{"exec", `{"command":["a"],"cwd":"/"}`, `payload.cwd: there is no such field; did you mean dir?`},
	{"exec", `{"command":["a"],"shell":true}`,
		`payload.shell: there is no such field; there are command, env, dir, feedback, note`},
	{"exec", `{"command":["` + strings.Repeat("x", 131_072) + `"]}`,
		`payload.command[0]: has 131072 bytes, and at most 131071 are allowed: Linux starts no command with so long`},
	{"exec", `{"command":["` + strings.Repeat("x", 131_071) + `"]}`, ""},
	{"exec", `{"command":["a"],"env":{"A":"` + strings.Repeat("x", 131_072) + `"}}`, `payload.env.A: has 131072 bytes`},

	{"mcp-tool", `{"server":"desk","tool":"find","arguments":{"id":9007199254740993}}`, ""},
	{"mcp-tool", `{"server":"desk","tool":"find","arguments":null,"feedback":[{}]}`, ""},
	{"mcp-tool", `{"server":"desk"}`, `payload: has no tool: the tool`},
	{"mcp-tool", `{"server":"Desk","tool":"find"}`, `payload.server: must be the name of a server`},
	{"mcp-tool", `{"server":"","tool":""}`, `payload.server: must be the name of a server`},
	{"mcp-tool", `{"server":"desk","tool":7}`, `payload.tool: must be text, and is a number`},
	{"mcp-tool", `{"server":"desk","tool":"find","arguments":"{}"}`, `payload.arguments: arguments are names and values`},
	{"mcp-tool", `{"server":"desk","tool":"find","args":{}}`, `payload.args: there is no such field; there are server, tool`},

	{"model", `{"messages":[{"role":"user","content":"hi"}]}`, ""},
	{"model", `{"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"1","name":"f","arguments":"x"}]},
		{"role":"tool","content":7,"tool_call_id":"1","failed":true}],"max_tokens":100,"temperature":0.5,
		"tools":[{"name":"f","description":"d","arguments":{"type":"object"}}],"route":{"provider":"p","model":"m","window":9}}`, ""},
	{"model", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":1.0,"temperature":2,"note":"again",
		"feedback":[{"attempt":1,"errors":["no"],"output":null,"at":"2026-01-01T00:00:00Z"}]}`, ""},
	{"model", `{"messages":[]}`, `payload.messages: is empty: messages are a list`},
	{"model", `{"messages":"hi"}`, `payload.messages: messages are a list, like [{role: user, content: hello}]`},
	{"model", `{"messages":[{"role":"usr","content":"hi"}]}`,
		`payload.messages[0].role: must be one of system, user, assistant, tool; did you mean user?`},
	{"model", `{"messages":[{"role":"user"}]}`, `payload.messages[0]: has no content: what is said`},
	{"model", `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`,
		`payload.messages[0].content: must be text, and is a list`},
	{"model", `{"messages":["hi"]}`, `payload.messages[0]: must be an object with role, content`},
	{"model", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":0}`,
		`payload.max_tokens: must be a whole number, 1 or more`},
	{"model", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":"9"}`, `payload.max_tokens: must be a whole`},
	{"model", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":1.5}`, `payload.max_tokens: must be a whole`},
	{"model", `{"messages":[{"role":"user","content":"hi"}],"temperature":-1}`, `payload.temperature: must be a number`},
	{"model", `{"messages":[{"role":"user","content":"hi"}],"temprature":1}`, `did you mean temperature?`},
	{"model", `{"messages":[{"role":"user","content":"hi"}],"route":{"provider":"P","model":""}}`,
		`payload.route.model: is empty`},
}

// TestPayloadsAreReadAsTheirSchemasSay compares what is read with what the JSON Schema accepts, both ways.
func TestPayloadsAreReadAsTheirSchemasSay(t *testing.T) {
	t.Parallel()
	schemas := map[string]*jsonschema.Schema{}
	for _, taskType := range payload.Types() {
		text, err := json.Marshal(payload.Schema(taskType))
		require.NoError(t, err)
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		require.NoError(t, err)
		compiler := jsonschema.NewCompiler()
		compiler.DefaultDraft(jsonschema.Draft2020)
		require.NoError(t, compiler.AddResource(taskType, document))
		schemas[taskType], err = compiler.Compile(taskType)
		require.NoError(t, err)
	}
	require.Len(t, schemas, 3)
	for _, c := range documents {
		written, err := payload.Check(c.taskType, "payload", json.RawMessage(c.text))
		if c.wrong == "" {
			require.NoError(t, err, c.text)
			require.True(t, json.Valid(written), c.text)
			again, err := payload.Check(c.taskType, "payload", written)
			require.NoError(t, err, c.text)
			require.Equal(t, string(written), string(again), "what was written is read again as it is")
		} else {
			require.ErrorContains(t, err, c.wrong, c.text)
		}
		if c.text == "" {
			continue
		}
		value, parseErr := jsonschema.UnmarshalJSON(strings.NewReader(c.text))
		require.NoError(t, parseErr)
		schemaErr := schemas[c.taskType].Validate(value)
		require.Equal(t, c.wrong == "", schemaErr == nil, "%s: %v", c.text, schemaErr)
	}
}

func TestTextIsTakenAsItIsWritten(t *testing.T) {
	t.Parallel()
	got, err := payload.ReadExec(json.RawMessage(
		`{"command":["a",1,1.10,true,12e4,12345678901234567890,-0.0],"env":{"V":1.10,"E":1E5}}`))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "1", "1.10", "true", "12e4", "12345678901234567890", "-0.0"}, got.Command)
	require.Equal(t, map[string]string{"V": "1.10", "E": "1E5"}, got.Env)
	call, err := payload.ReadCall(json.RawMessage(`{"server":"s","tool":"t","arguments":{"id": 9007199254740993}}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"id": 9007199254740993}`, string(call.Arguments))
	require.Contains(t, string(call.Arguments), "9007199254740993")
}

func TestAVariableAndItsNameAreBoundedTogether(t *testing.T) {
	t.Parallel()
	for n, wrong := range map[int]string{131_070 - 4: "", 131_070 - 3: "has 131071 bytes with its name"} {
		_, err := payload.Check("exec", "payload", json.RawMessage(
			`{"command":["a"],"env":{"NAME":"`+strings.Repeat(`\n`, n)+`"}}`))
		if wrong == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, wrong)
		}
	}
}

func TestFieldsAreNotThereTwice(t *testing.T) {
	t.Parallel()
	_, err := payload.Check("exec", "payload", json.RawMessage(`{"command":["a"],"command":["b"]}`))
	require.EqualError(t, err, "payload.command: stands there twice: keep one of them")
}

// TestTemplatesAreCheckedAsFarAsTheyAreKnown has expressions where anything may stand.
func TestTemplatesAreCheckedAsFarAsTheyAreKnown(t *testing.T) {
	t.Parallel()
	for text, wrong := range map[string]string{
		`"${inputs.all}"`:                                     "",
		`{"command":"${inputs.words}"}`:                       "",
		`{"command":["${inputs.program}",1,"-${item}"]}`:      "",
		`{"command":["a"],"env":"${inputs.env}"}`:             "",
		`{"command":["a"],"env":{"A":"${inputs.a}","B":2}}`:   "",
		`{"command":"make ${inputs.target}"}`:                 "a command is a list of words",
		`"make ${inputs.target}"`:                             "must be like {command",
		`{"comand":["${inputs.a}"]}`:                          "did you mean command?",
		`{"command":["${inputs.a}",null]}`:                    "payload.command[1]: is null",
		`{"command":"make"}`:                                  "a command is a list of words",
		`{"command":["a"],"env":{"A=":"${inputs.a}"}}`:        "a name of a variable",
		`{"command":["${inputs.a}"],"dir":["${inputs.dir}"]}`: "payload.dir: must be text, and is a list",
	} {
		_, problems := payload.Template("exec", "payload", json.RawMessage(text))
		if wrong == "" {
			require.Empty(t, problems, text)
		} else {
			require.ErrorContains(t, &payload.Error{Problems: problems}, wrong, text)
		}
	}
	taken, problems := payload.Template("exec", "p", json.RawMessage(`{"command":["a",1,"2"],"env":{"A":true}}`))
	require.Empty(t, problems)
	require.Equal(t, []string{"p.command[1]", "p.env.A"}, taken)
	_, problems = payload.Template("model", "p", json.RawMessage(
		`{"messages":"${steps.a.output}","max_tokens":"${inputs.n}","temperature":"${inputs.t}"}`))
	require.Empty(t, problems)
}

func TestTasksOfOtherTypesPass(t *testing.T) {
	t.Parallel()
	require.NoError(t, payload.Task(&api.TaskSpec{Type: "echo", Payload: json.RawMessage(`[`)}))
	require.NoError(t, payload.Elements(&api.TaskSpec{Type: "echo"}, nil))
}

func TestElementsOfArraysAreChecked(t *testing.T) {
	t.Parallel()
	exec := api.TaskSpec{Type: "exec"}
	require.ErrorContains(t, payload.Elements(&exec, nil), "payload: is missing")
	require.ErrorContains(t, payload.Elements(&exec,
		[]json.RawMessage{[]byte(`{"command":["a"]}`), []byte(`1`)}), "items[1]: must be like")
	exec.Payload = json.RawMessage(`{"command":["a",1]}`)
	require.NoError(t, payload.Elements(&exec, nil))
	require.JSONEq(t, `{"command":["a","1"]}`, string(exec.Payload))
}

func TestAModelNeedsARoute(t *testing.T) {
	t.Parallel()
	spec := api.TaskSpec{Type: "model", Payload: json.RawMessage(`{"messages":[{"role":"user","content":1.10}]}`)}
	require.ErrorContains(t, payload.Task(&spec), "routes: is missing: name the providers")
	spec.Routes = []api.Route{{Provider: "p", Model: "m"}}
	require.NoError(t, payload.Task(&spec))
	require.JSONEq(t, `{"messages":[{"role":"user","content":"1.10"}]}`, string(spec.Payload))
	spec.Routes, spec.Payload = nil, json.RawMessage(
		`{"messages":[{"role":"user","content":"x"}],"route":{"provider":"p","model":"m"}}`)
	require.NoError(t, payload.Task(&spec))
}
