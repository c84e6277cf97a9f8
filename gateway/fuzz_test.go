package gateway_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/mainstay/internal/store"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// fuzzed is a gateway behind its routes, with the cluster default.
func fuzzed(f *testing.F) http.Handler {
	f.Helper()
	temporal := newFake()
	c := open(contract.ClusterWorkflowID("default"), contract.ClusterWorkflow)
	c.query = func() (any, error) {
		return contract.ClusterView{Cluster: cluster.Cluster{Config: api.ClusterConfig{Name: "default"}}}, nil
	}
	c.update = func(string, any) (any, error) { return nil, nil }
	temporal.executions[contract.ClusterWorkflowID("default")] = c
	s := httpapi.New(httpapi.Options{})
	gateway.New(gateway.Options{Store: store.Store{Client: temporal}}).Register(s.API())
	return s.Handler()
}

// requireClear checks that an answer is a success, or a problem that says what is wrong, and never a failure of ours.
func requireClear(t *testing.T, w *httptest.ResponseRecorder) {
	require.Less(t, w.Code, 500, w.Body.String())
	require.True(t, json.Valid(w.Body.Bytes()))
	if w.Code < 300 {
		return
	}
	var p protocol.Problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.NotEmpty(t, p.Code)
	require.NotEmpty(t, p.Detail)
}

const goodTask = `{"type":"exec","cluster":"default","payload":{"command":["true"]},
  "priority":1,"required_capabilities":["gpu"],"affinity":"a",
"retry":{"max_attempts":5,"initial_interval":"100ms"},"retry_safety":"fenced","timeout":"00:00:30","beacon_timeout":"45s","provider":"llm","labels":{"a":"b"}}`

var oddTasks = []string{"", "null", "[]", "{}", "{", `{"type":`, "\xff",
	`{"type":"x","cluster":"default","timeout":"9999999h"}`,
	`{"type":"x","cluster":"default","payload":1e999}`, strings.Repeat(`{"payload":`,
		5_000), `{"id":"t","idempotency_key":"k","type":"x","cluster":"default"}`}

func FuzzSubmit(f *testing.F) {
	h := fuzzed(f)
	f.Add(goodTask)
	for _, seed := range oddTasks {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := do(h, http.MethodPost, tasksPath, body)
		requireClear(t, w)
		if w.Code >= 300 {
			return
		}
		var task api.Task
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &task))
		require.NoError(t, api.ValidateTaskID(task.ID))
	})
}

func FuzzBatch(f *testing.F) {
	h := fuzzed(f)
	f.Add("[" + goodTask + "," + goodTask + ",7,null,{}]")
	for _, seed := range oddTasks {
		f.Add("[" + seed + "," + goodTask + "]")
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := do(h, http.MethodPost, tasksPath+"/batch", body)
		requireClear(t, w)
		if w.Code >= 300 {
			return
		}
		var answer struct {
			Tasks              []api.BatchItem
			Accepted, Rejected int
		}
		var sent []json.RawMessage
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		require.NoError(t, json.Unmarshal([]byte(body), &sent))
		require.Len(t, answer.Tasks, len(sent), "one answer for each")
		require.Equal(t, len(sent), answer.Accepted+answer.Rejected)
		for _, item := range answer.Tasks {
			require.NotEqual(t, item.ID == "", item.Error == nil)
		}
	})
}
