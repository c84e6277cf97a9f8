package coolify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/mainstay/internal/spawner"
	"mainstay.dev/sdk/api"
)

// server is a Coolify of the tests.
type server struct {
	t      *testing.T
	mu     sync.Mutex
	url    string
	router routers.Router // of Coolify's published OpenAPI document; nil: it is not here
	apps   map[string]map[string]any
	files  map[string][]map[string]any
	envs   map[string]any
	fails  string // what a deployment says when it fails; empty: it does not
	loses  string // the request whose answer is lost, once
}

// document finds the operations of Coolify's published OpenAPI document, in the file that MAINSTAY_COOLIFY_OPENAPI
// names; nil: it names none.
var document = sync.OnceValues(func() (routers.Router, error) {
	path := os.Getenv("MAINSTAY_COOLIFY_OPENAPI")
	if path == "" {
		return nil, nil
	}
	doc, err := openapi3.NewLoader().LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	doc.Servers = openapi3.Servers{{URL: "http://coolify/api/v1"}}
	// It demands both the environment's name and its uuid, and its text says that one of them is enough.
	body := doc.Paths.Find("/applications/dockerimage").Post.RequestBody.Value.Content["application/json"].Schema.Value
	body.Required = slices.DeleteFunc(body.Required, func(name string) bool { return name == "environment_uuid" })
	return gorillamux.NewRouter(doc)
})

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, apps: map[string]map[string]any{}, files: map[string][]map[string]any{}, envs: map[string]any{}}
	front := httptest.NewServer(s)
	t.Cleanup(front.Close)
	s.url = front.URL
	router, err := document()
	require.NoError(t, err)
	if s.router = router; router == nil {
		t.Log("requests are not checked against Coolify's OpenAPI document: MAINSTAY_COOLIFY_OPENAPI names no file")
	}
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, _ := io.ReadAll(r.Body)
	if s.router != nil {
		r.Body = io.NopCloser(bytes.NewReader(content))
		checked := r.Clone(r.Context())
		checked.URL.Scheme, checked.URL.Host, checked.Host = "http", "coolify", "coolify"
		route, params, err := s.router.FindRoute(checked)
		if err == nil {
			err = openapi3filter.ValidateRequest(r.Context(), &openapi3filter.RequestValidationInput{Request: checked,
				PathParams: params, Route: route, Options: &openapi3filter.Options{
					AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}})
		}
		if err != nil {
			s.t.Errorf("%s %s is not of Coolify's document: %v", r.Method, r.URL.Path, err)
		}
	}
	var body map[string]any
	_ = json.Unmarshal(content, &body)
	if r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"message":"Unauthenticated."}`)
		return
	}
	if r.URL.Path == "/api/v1/version" { // the command line asks
		_, _ = io.WriteString(w, "4.1.2")
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	answer, code := s.serve(r.Method+" "+strings.Join(parts[min(2, len(parts)):], "/"), parts, body)
	if s.loses == r.Method+" "+parts[len(parts)-1] {
		s.loses = ""
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *server) serve(what string, parts []string, body map[string]any) (any, int) {
	if parts[0] == "deployments" {
		if s.fails != "" {
			return map[string]any{"status": "failed", "logs": s.fails}, http.StatusOK
		}
		for _, app := range s.apps {
			app["status"] = "running:unknown"
		}
		return map[string]any{"status": "finished"}, http.StatusOK
	}
	if len(parts) == 1 {
		list := []any{}
		for _, app := range s.apps {
			list = append(list, app)
		}
		return list, http.StatusOK
	}
	if parts[1] == "dockerimage" {
		body["uuid"], body["status"] = fmt.Sprint("u", len(s.apps)), "exited"
		body["created_at"], body["updated_at"] = time.Now(), time.Now()
		s.apps[body["uuid"].(string)] = body //nolint:forcetypeassert // it is one
		return map[string]any{"uuid": body["uuid"]}, http.StatusCreated
	}
	app := s.apps[parts[1]]
	if app == nil {
		return map[string]any{"message": "Application not found."}, http.StatusNotFound
	}
	switch what {
	case "GET ":
		return app, http.StatusOK
	case "GET logs":
		return map[string]any{"logs": "first\nlast words\n"}, http.StatusOK
	case "GET storages":
		return map[string]any{"file_storages": s.files[parts[1]]}, http.StatusOK
	case "POST storages":
		s.files[parts[1]] = append(s.files[parts[1]], body)
		return body, http.StatusCreated
	case "PATCH envs/bulk":
		s.envs[parts[1]] = body["data"]
		return body, http.StatusCreated
	case "POST start":
		return map[string]any{"deployment_uuid": "d"}, http.StatusOK
	case "POST stop":
		app["status"] = "exited"
	case "DELETE ":
		delete(s.apps, parts[1])
	}
	return map[string]any{"message": "queued"}, http.StatusOK
}

func spawnerOf(t *testing.T, s *server) *Coolify {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	c, err := New(Options{URL: s.url, TokenFile: token, Server: "s", Project: "p", EnvironmentName: "production",
		Pause: 10 * time.Millisecond, Options: spawner.Options{Name: "cool", Image: "registry:5000/agent:1",
			HubURLs:   []string{"http://hub:8080"},
			JoinToken: func(spec cluster.SpawnSpec) (string, error) { return "token-of-" + spec.ID, nil }}})
	require.NoError(t, err)
	return c
}

var spec = cluster.SpawnSpec{ID: "c-1", Cluster: "c", Resources: api.Resources{CPU: "500m", Memory: "64Mi"}}

// TestAnApplicationIsAnAgent loses the answer of each step in turn, and starts again as the caller does.
func TestAnApplicationIsAnAgent(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"", "POST dockerimage", "PATCH bulk", "POST storages", "POST start"} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.loses = lost
			c := spawnerOf(t, s)
			spawned, err := c.Spawn(t.Context(), spec)
			if lost != "" {
				require.Error(t, err)
				require.NotErrorIs(t, err, spawner.ErrRefused)
				c = spawnerOf(t, s) // the process died too
				spawned, err = c.Spawn(t.Context(), spec)
			}
			require.NoError(t, err)
			again, err := c.Spawn(t.Context(), spec)
			require.NoError(t, err)
			require.Equal(t, spawned.Handle, again.Handle)
			require.Len(t, s.apps, 1)
			app := s.apps["u0"]
			require.Equal(t, []any{"mainstay-c-1", "registry:5000/agent", "1", "0.5", "67108864"}, []any{app["name"],
				app["docker_registry_image_name"], app["docker_registry_image_tag"], app["limits_cpus"], app["limits_memory"]})
			require.Len(t, s.files["u0"], 1)
			require.Equal(t, []any{"file", "/run/mainstay/join-token", "token-of-c-1"},
				[]any{s.files["u0"][0]["type"], s.files["u0"][0]["mount_path"], s.files["u0"][0]["content"]})
			require.NotContains(t, fmt.Sprint(s.envs), "token-of", "the token is in no environment")
			list, err := c.List(t.Context())
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, []string{"c-1", "c", "cool", "u0"}, []string{list[0].ID, list[0].Cluster, list[0].Spawner,
				list[0].Handle})
			require.NoError(t, c.Terminate(t.Context(), "c-1", true))
			require.Empty(t, s.apps)
			require.NoError(t, c.Terminate(t.Context(), "c-1", true), "what is not there has ended")
		})
	}
}

func TestWhatCoolifySaysIsWhyNothingStarts(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.fails = `[{"output":"pulling"},{"output":"secret","hidden":true},{"output":"manifest unknown"}]`
	c := spawnerOf(t, s)
	_, err := c.Spawn(t.Context(), spec)
	require.ErrorIs(t, err, spawner.ErrRefused)
	require.ErrorContains(t, err, "its deployment is failed: manifest unknown")
	c.token = "other"
	_, err = c.List(t.Context())
	require.ErrorIs(t, err, spawner.ErrRefused)
	require.ErrorContains(t, err, "Unauthenticated.")
}

func TestEndsOfApplicationsAreReported(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := spawnerOf(t, s)
	c.o.Keep = 100 * time.Millisecond
	_, err := c.Spawn(t.Context(), spec)
	require.NoError(t, err)
	reports := make(chan api.SpawnEnd, 10)
	ended := func(end api.SpawnEnd) { reports <- end }
	require.NoError(t, c.look(t.Context(), ended))
	require.Empty(t, reports)
	s.mu.Lock()
	s.apps["u0"]["status"] = "exited:unhealthy"
	s.mu.Unlock()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go c.Watch(ctx, ended)
	end := <-reports
	require.Equal(t, []string{"c-1", "c", "its application is exited:unhealthy: last words"},
		[]string{end.AgentID, end.Cluster, end.Reason})
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.apps) == 0 }, time.Minute,
		10*time.Millisecond, "what is left of it is deleted")
	require.Empty(t, reports)
}

// TestCoolifysCommandLineAgrees holds the server of these tests to Coolify's own client, the program that
// MAINSTAY_COOLIFY_CLI names.
func TestCoolifysCommandLineAgrees(t *testing.T) {
	t.Parallel()
	program := os.Getenv("MAINSTAY_COOLIFY_CLI")
	if program == "" {
		t.Skip("the server of these tests is not checked with Coolify's command line: MAINSTAY_COOLIFY_CLI names no program")
	}
	s := newServer(t)
	c, home := spawnerOf(t, s), t.TempDir()
	cli := func(args ...string) string {
		command := exec.CommandContext(t.Context(), program, args...)
		command.Env = []string{"HOME=" + home}
		output, err := command.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, output)
		return string(output)
	}
	cli("context", "add", "tests", s.url, "secret", "--default")
	_, err := c.Spawn(t.Context(), spec)
	require.NoError(t, err)
	for _, seen := range []string{cli("app", "list", "--format", "json"), cli("app", "get", "u0", "--format", "json")} {
		require.Contains(t, seen, `"mainstay-c-1"`)
		require.Contains(t, seen, `"running:unknown"`)
	}
	require.Contains(t, cli("app", "logs", "u0"), "last words")
	require.Contains(t, cli("app", "storage", "list", "u0", "--format", "json"), "/run/mainstay/join-token")
	cli("app", "stop", "u0")
	list, err := c.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, list, "the spawner sees what the command line did")
	cli("app", "delete", "u0", "--force")
	require.Empty(t, s.apps)
}

func TestTheTokenFollowsNoRedirection(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	front := httptest.NewServer(http.RedirectHandler(s.url+"/api/v1/applications", http.StatusFound))
	t.Cleanup(front.Close)
	c := spawnerOf(t, &server{url: front.URL})
	_, err := c.List(t.Context())
	require.ErrorContains(t, err, "302")
}
