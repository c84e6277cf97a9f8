package everyday

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mainstay.dev/mainstay/testsuite/build"
)

// jsonTexts draws JSON, most of it numbers of all forms. Their exponents are those that a double has: MCP's clients
// know no others.
func jsonTexts(depth int) *rapid.Generator[string] {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?`)
	word := rapid.SampledFrom([]string{"null", "true", `"1.10"`, `"a \"b\""`})
	if depth == 0 {
		return rapid.OneOf(number, number, word)
	}
	inner := jsonTexts(depth - 1)
	return rapid.OneOf(number, rapid.Custom(func(t *rapid.T) string {
		return "[" + strings.Join(rapid.SliceOfN(inner, 0, 5).Draw(t, "list"), ",") + "]"
	}), rapid.Custom(func(t *rapid.T) string {
		members := rapid.SliceOfN(inner, 0, 5).Draw(t, "object")
		for i := range members {
			members[i] = fmt.Sprintf("%q:%s", string(rune('a'+i)), members[i])
		}
		return "{" + strings.Join(members, ",") + "}"
	}))
}

// TestDigits sends random JSON by each way in, through handlers in Python and Node, and reads it by each way out. No
// digit changes.
func TestDigits(t *testing.T) {
	t.Parallel()
	program, err := build.Program(t.TempDir())
	require.NoError(t, err)
	url := startDev(t, program)
	var agents []string
	for name, argv := range map[string][]string{"py-digits": {"python3", "../../examples/python/agent.py"},
		"js-digits": {"node", "../../examples/javascript/agent.mjs"}} {
		if _, err := exec.LookPath(argv[0]); err == nil {
			startAgent(t, argv, url, name)
			agents = append(agents, name)
		}
	}
	if len(agents) == 0 {
		t.Skip("there is neither Python nor Node")
	}
	d := &digits{T: t, program: program, url: url}
	d.assistant = d.connect()
	for seed := range 6 {
		value := "[" + strings.Join(rapid.SliceOfN(jsonTexts(3), 10, 10).Example(seed), ",") + "]"
		for n, agent := range agents {
			id := fmt.Sprintf("digits-%d-%d", seed, n)
			d.rest("POST", "/tasks", fmt.Sprintf(`{"id":%q,"type":"echo","cluster":"default","agent":%q,"payload":%s}`, id, agent,
				value))
			d.everywhere(id, value)
			d.everywhere(d.cli("task", "submit", "--type", "echo", "--agent", agent, "--payload", value, "--wait", "-o", "json"), value)
			d.everywhere(d.run(id, agent, value), value)
		}
		d.everywhere(d.call("submit_task", fmt.Sprintf(`{"type":"echo","idempotency_key":"digits-%d","payload":{"v":%s}}`, seed,
			value)), `{"v":`+value+`}`)
	}
}

// startAgent starts an example; it ends with the test.
func startAgent(t *testing.T, argv []string, url, name string) {
	command := exec.Command(argv[0], argv[1:]...)
	var said build.Output
	command.Env = append(environment(), "HUB="+url, "CLUSTER=default", "ID="+name)
	command.Stdout, command.Stderr = &said, &said
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, &said)
		}
	})
}

// digits are the ways in and out.
type digits struct {
	*testing.T
	program, url string
	assistant    *sdk.ClientSession
}

// payloadTask is what is read of a task.
type payloadTask struct {
	ID, Status      string
	Payload, Result json.RawMessage
}

func (d *digits) read(text string) (task payloadTask) {
	d.Helper()
	require.NoError(d, json.Unmarshal([]byte(text), &task), text)
	return task
}

// everywhere waits for a task that is given as JSON or by its id, and looks at what it was given and has brought.
func (d *digits) everywhere(task, value string) {
	d.Helper()
	id := task
	if strings.HasPrefix(task, "{") {
		id = d.read(task).ID
	}
	var answer string
	require.Eventually(d, func() bool {
		answer = d.rest("GET", "/tasks/"+id+"?include=payload", "")
		return d.read(answer).Status == "completed"
	}, patience, 20*time.Millisecond, "task %s: %s", id, &answer)
	for way, text := range map[string]string{"REST": answer, "the command line": d.cli("task", "get", id, "-o", "json"),
		"MCP": d.call("get_task", `{"id":"`+id+`"}`)} {
		one := d.read(text)
		require.Equal(d, value, compact(one.Result), "the result by %s", way)
		if way != "the command line" && one.Payload != nil {
			require.Equal(d, value, compact(one.Payload), "the payload by %s", way)
		}
	}
}

func compact(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return string(text)
	}
	return b.String()
}

// run has a job pass the value on, by its expressions, and returns the id of the task of its last step.
func (d *digits) run(id, agent, value string) string {
	d.Helper()
	file := filepath.Join(d.TempDir(), "job.yaml")
	require.NoError(d, os.WriteFile(file, fmt.Appendf(nil, `job: %s
cluster: default
inputs: {properties: {v: {type: array}, unused: {default: 1.10}}}
steps:
  first: {task: {type: echo, agent: %q, payload: {v: "${inputs.v}"}}, output: {kept: result.v}}
  last: {after: [first], task: {type: echo, agent: %[2]q, payload: "${steps.first.output.kept.map(x, x)}"}}
`, id, agent), 0o600))
	answer := d.cli("job", "run", file, "-i", "v="+value, "-o", "json")
	var run struct{ ID string }
	require.NoError(d, json.Unmarshal([]byte(answer), &run), answer)
	return run.ID + "~last"
}

func (d *digits) rest(method, path, body string) string {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Context(), method, d.url+"/api/v1/agents"+path, strings.NewReader(body))
	require.NoError(d, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	require.NoError(d, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(d, err)
	require.Less(d, response.StatusCode, 300, string(text))
	return string(text)
}

func (d *digits) cli(args ...string) string {
	d.Helper()
	command := exec.CommandContext(d.Context(), d.program, args...)
	command.Env = append(environment(), "MAINSTAY_SERVER="+d.url)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	text, err := command.Output()
	require.NoError(d, err, "%v: %s%s", args, text, &stderr)
	return string(text)
}

// connect begins a session with the tools of `mainstay mcp`.
func (d *digits) connect() *sdk.ClientSession {
	command := exec.CommandContext(d.Context(), d.program, "mcp")
	command.Env = append(environment(), "MAINSTAY_SERVER="+d.url)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "digits", Version: "1"}, nil).
		Connect(d.Context(), &sdk.CommandTransport{Command: command}, nil)
	require.NoError(d, err)
	d.Cleanup(func() { _ = session.Close() })
	return session
}

func (d *digits) call(tool, arguments string) string {
	d.Helper()
	result, err := d.assistant.CallTool(d.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
	require.NoError(d, err)
	require.Len(d, result.Content, 1)
	text := result.Content[0].(*sdk.TextContent).Text
	require.False(d, result.IsError, text)
	return text
}
