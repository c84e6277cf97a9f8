package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/contract"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// settledCluster is a cluster that takes changes as its workflow does.
func settledCluster(f *fakeTemporal, config api.ClusterConfig) *api.ClusterConfig {
	config = config.WithDefaults()
	e := f.withCluster(config)
	var mu sync.Mutex
	e.query = func() (any, error) {
		mu.Lock()
		defer mu.Unlock()
		return contract.ClusterView{Cluster: cluster.Cluster{Config: config}}, nil
	}
	e.update = func(_ string, arg any) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		var expected []string
		switch request := arg.(type) {
		case contract.ConfigureRequest:
			if expected = request.IfRevisions; config.RevisionIs(expected) {
				config = request.ClusterConfig
				return contract.Done{}, nil
			}
		case contract.DeleteRequest:
			if expected = request.IfRevisions; config.RevisionIs(expected) {
				return nil, nil
			}
		}
		return nil, temporal.NewNonRetryableApplicationError("canary", contract.Outdated, nil)
	}
	return &config
}

func doWith(h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestIfMatch(t *testing.T) {
	t.Parallel()
	f := newFake()
	config := settledCluster(f, api.ClusterConfig{Name: "web", MinAgents: 1})
	h := serve(t, f)
	path := clustersPath + "/web"
	seen := do(h, http.MethodGet, path, "")
	tag := seen.Header().Get("ETag")
	got := answer[api.Cluster](t, seen, http.StatusOK)
	require.Equal(t, `"`+got.Revision+`"`, tag)
	list := answer[struct{ Clusters []api.Cluster }](t, do(h, http.MethodGet, clustersPath, ""), http.StatusOK)
	require.Equal(t, got.Revision, list.Clusters[0].Revision)

	// Another person changes it: what was made for the older settings is refused.
	changed := do(h, http.MethodPatch, path, `{"min_agents":2}`)
	require.NotEqual(t, tag, changed.Header().Get("ETag"))
	for _, c := range []struct{ method, body string }{
		{http.MethodPut, `{"max_agents":9}`}, {http.MethodPatch, `{"max_agents":9}`}, {http.MethodDelete, ""},
	} {
		p := problem(t, doWith(h, c.method, path, c.body, "If-Match", tag), 412, protocol.CodePrecondition)
		require.Contains(t, p.Detail, "get the cluster", c.method)
		problem(t, doWith(h, c.method, path, c.body, "If-Match", "W/"+tag), 422, protocol.CodeInvalidRequest)
		problem(t, doWith(h, c.method, path, c.body, "If-Match", "canary"), 422, protocol.CodeInvalidRequest)
	}
	require.Equal(t, 2, config.MinAgents)
	require.Equal(t, api.DefaultMaxAgents, config.MaxAgents)

	newest := changed.Header().Get("ETag")
	w := doWith(h, http.MethodPatch, path, `{"max_agents":9}`, "If-Match", `"other", `+newest)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, 9, config.MaxAgents)
	compressed := strings.TrimSuffix(w.Header().Get("ETag"), `"`) + `-gzip"`
	require.Equal(t, http.StatusOK, doWith(h, http.MethodPatch, path, `{"max_agents":9}`, "If-Match", compressed).Code,
		"as a large answer has it")
	require.Equal(t, http.StatusOK, doWith(h, http.MethodPut, path, `{"desired_agents":3}`, "If-Match",
		w.Header().Get("ETag")).Code)
	require.Equal(t, 3, config.DesiredAgents)
	require.Zero(t, config.MinAgents, "PUT replaces: what is left out has its default")
	p := problem(t, doWith(h, http.MethodPut, path, `{"desired_agents":5}`, "If-None-Match", "*"), 412,
		protocol.CodePrecondition)
	require.Contains(t, p.Detail, "there is a cluster with this name")
	problem(t, doWith(h, http.MethodPut, path, `{"desired_agents":5}`, "If-None-Match", newest), 422,
		protocol.CodeInvalidRequest)
	problem(t, doWith(h, http.MethodPut, clustersPath+"/none", `{}`, "If-None-Match", "*"), 404,
		protocol.CodeUnknownCluster)
	require.Equal(t, 3, config.DesiredAgents)
	require.Equal(t, http.StatusNoContent, doWith(h, http.MethodDelete, path, "", "If-Match", "*").Code)
}

// TestConcurrentPatches has many change different settings at once, without a precondition: none is lost.
func TestConcurrentPatches(t *testing.T) {
	t.Parallel()
	f := newFake()
	config := settledCluster(f, api.ClusterConfig{Name: "web"})
	h := serve(t, f)
	var wg sync.WaitGroup
	for _, body := range []string{`{"min_agents":1}`, `{"desired_agents":4}`, `{"max_agents":8}`,
		`{"target_group":"racks"}`} {
		wg.Go(func() {
			if w := do(h, http.MethodPatch, clustersPath+"/web", body); w.Code != http.StatusOK {
				t.Errorf("%s: %d %s", body, w.Code, w.Body)
			}
		})
	}
	wg.Wait()
	require.Equal(t, api.ClusterConfig{Name: "web", MinAgents: 1, DesiredAgents: 4, MaxAgents: 8,
		TargetGroup: "racks"}.WithDefaults(), *config)
}

func TestIdempotencyKeyHeader(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.withCluster(api.ClusterConfig{Name: "web"})
	h := serve(t, f)
	const path = "/api/v1/agents/tasks"
	body := func(key string) string { return `{"type":"t","cluster":"web"` + key + `}` }
	inBody := answer[api.Task](t, do(h, http.MethodPost, path, body(`,"idempotency_key":"k-1"`)), http.StatusAccepted)
	for _, header := range []string{"k-1", `"k-1"`} {
		again := answer[api.Task](t, doWith(h, http.MethodPost, path, body(""), "Idempotency-Key", header),
			http.StatusOK)
		require.Equal(t, inBody.ID, again.ID, "header and body mean the same")
		require.True(t, again.Duplicate)
	}
	both := doWith(h, http.MethodPost, path, body(`,"idempotency_key":"k-1"`), "Idempotency-Key", "k-1")
	require.Equal(t, http.StatusOK, both.Code, both.Body)
	for name, c := range map[string]struct{ path, body, key string }{
		"another":   {path, body(`,"idempotency_key":"k-1"`), "canary"},
		"empty":     {path, body(""), `""`},
		"beside id": {path, body(`,"id":"mine"`), "k-2"},
		"batch":     {path + "/batch", "[" + body("") + "]", "k-3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problem(t, doWith(h, http.MethodPost, c.path, c.body, "Idempotency-Key", c.key), 422,
				protocol.CodeInvalidRequest)
		})
	}
}
