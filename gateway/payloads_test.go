package gateway_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// TestSchemasAreServed to everybody, each by its name.
func TestSchemasAreServed(t *testing.T) {
	t.Parallel()
	h := serve(t, newFake())
	list := answer[struct {
		Schemas []struct{ Name, Path string } `json:"schemas"`
	}](t, do(h, http.MethodGet, "/api/v1/schemas", ""), http.StatusOK)
	require.Len(t, list.Schemas, 5)
	for _, s := range list.Schemas {
		for _, path := range []string{s.Path, s.Path + ".json"} {
			schema := answer[struct {
				Schema string `json:"$schema"`
				Type   string `json:"type"`
			}](t, do(h, http.MethodGet, path, ""), http.StatusOK)
			require.Equal(t, "https://json-schema.org/draft/2020-12/schema", schema.Schema, path)
			require.Equal(t, "object", schema.Type, path)
		}
	}
	problem(t, do(h, http.MethodGet, "/api/v1/schemas/nothing", ""), http.StatusNotFound, protocol.CodeNotFound)
}

// TestPayloadsAreCheckedWhereverTheyComeIn names the field of what no agent could run.
func TestPayloadsAreCheckedWhereverTheyComeIn(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	f.withJobs()
	h := serve(t, f)
	const wrong = `"cluster":"default","type":"exec","payload":{"command":"make test"}`
	const list = `a command is a list of words: [make, test], or [sh, -c, "make test"]`
	for at, c := range map[string]struct{ method, path, body string }{
		"body.payload.command":                    {"POST", tasksPath, `{` + wrong + `}`},
		"body.task.payload.command":               {"POST", "/api/v1/agents/schedules", `{"name":"s","interval":"1h","task":{` + wrong + `}}`},
		"body.items[1].command":                   {"POST", arraysPath, `{"cluster":"default","type":"exec","items":[{"command":["a"]},{"command":"a"}]}`},
		"body.steps.a.task.payload.command":       {"POST", "/api/v1/agents/jobs/j/plan", `{"job":"j","cluster":"default","steps":{"a":{"task":{"type":"exec","payload":{"command":"a"}}}}}`},
		"body.instances.task.payload.command":     {"PUT", "/api/v1/agents/jobs/j", `{"job":"j","cluster":"default","type":"service","instances":{"task":{"type":"exec","payload":{"command":"a"}}}}`},
		"body.steps.a.check.task.payload.command": {"PUT", "/api/v1/agents/jobs/j", `{"job":"j","cluster":"default","steps":{"a":{"task":{"type":"x"},"check":{"task":{"type":"exec","payload":{"command":"a"}}}}}}`},
	} {
		p := problem(t, do(h, c.method, c.path, c.body), http.StatusUnprocessableEntity, protocol.CodeInvalidRequest)
		require.Equal(t, []api.ProblemField{{Location: at, Message: list}}, p.Errors)
	}
	batch := answer[struct {
		Tasks []api.BatchItem `json:"tasks"`
	}](t, do(h, http.MethodPost, tasksPath+"/batch",
		`[{"cluster":"default","type":"exec","payload":{"command":["make",1]}},{`+wrong+`}]`), http.StatusAccepted)
	require.Nil(t, batch.Tasks[0].Error)
	require.Equal(t, []api.ProblemField{{Location: "body.payload.command", Message: list}}, batch.Tasks[1].Error.Errors)
	in := f.executions[contract.TaskWorkflowID(batch.Tasks[0].ID)].input.(contract.TaskInput)
	require.JSONEq(t, `{"command":["make","1"]}`, string(in.Spec.Payload))
}

// TestNoIntakeLosesAField: work that may not run twice must not become idempotent because a field is misspelt. Events from
// outside are in mesh, the tools of assistants in cli/mcp.
func TestNoIntakeLosesAField(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "default"})
	f.withJobs()
	h := serve(t, f)
	const task = `"cluster":"default","type":"any","retrySafety":"at_most_once"`
	for at, c := range map[string]struct{ method, path, body string }{
		"body.retrySafety":                    {"POST", tasksPath, `{` + task + `}`},
		"body.task.retrySafety":               {"POST", "/api/v1/agents/schedules", `{"name":"s","interval":"1h","task":{` + task + `}}`},
		"body.arrays.retrySafety":             {"POST", arraysPath, `{` + task + `,"items":[1]}`},
		"body.steps.a.retrySafety":            {"PUT", "/api/v1/agents/jobs/j", `{"job":"j","cluster":"default","steps":{"a":{"task":{"type":"x"},"retrySafety":"at_most_once"}}}`},
		"body.steps.a.task.retrySafety":       {"POST", "/api/v1/agents/jobs/j/plan", `{"job":"j","cluster":"default","steps":{"a":{"task":{"type":"x","retrySafety":"fenced"}}}}`},
		"body.steps.a.check.task.retrySafety": {"PUT", "/api/v1/agents/jobs/j", `{"job":"j","cluster":"default","steps":{"a":{"task":{"type":"x"},"check":{"task":{"type":"y","retrySafety":"fenced"}}}}}`},
		"body.instances.task.retrySafety":     {"PUT", "/api/v1/agents/jobs/j", `{"job":"j","cluster":"default","type":"service","instances":{"task":{"type":"x","retrySafety":"fenced"}}}`},
		"body.retrySafety of a rerun":         {"POST", tasksPath + "/t/rerun", `{"retrySafety":"at_most_once"}`},
		"body.retrySafety of a dispatch":      {"POST", "/api/v1/agents/jobs/j/dispatch", `{"retrySafety":"at_most_once"}`},
		"body.retrySafety of a bulk":          {"POST", tasksPath + "/bulk", `{"action":"retry","filter":{"cluster":"default"},"retrySafety":"fenced"}`},
	} {
		r := do(h, c.method, c.path, c.body)
		require.Equal(t, http.StatusUnprocessableEntity, r.Code, "%s: %s", at, r.Body)
		require.Contains(t, r.Body.String(), "retrySafety", "%s", at)
	}
	batch := answer[struct {
		Tasks []api.BatchItem `json:"tasks"`
	}](t, do(h, http.MethodPost, tasksPath+"/batch", `[{`+task+`}]`), http.StatusAccepted)
	require.NotNil(t, batch.Tasks[0].Error)
}
