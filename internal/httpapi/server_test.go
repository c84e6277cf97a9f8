package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

type thing struct {
	Name    string            `json:"name" pattern:"^[a-z]+$" maxLength:"20"`
	Count   int               `json:"count,omitempty" minimum:"1" maximum:"9"`
	Mail    string            `json:"mail,omitempty" format:"email"`
	Kind    string            `json:"kind,omitempty" enum:"a,b"`
	Wait    api.Duration      `json:"wait,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Payload json.RawMessage   `json:"payload,omitempty"`
}

type thingInput struct {
	ID    string `path:"id"`
	Limit int    `query:"limit" maximum:"10"`
	Body  thing
}

type thingOutput struct{ Body struct{ Bytes int } }

// serve registers operations that succeed, fail and panic.
func serve(t *testing.T, o httpapi.Options) http.Handler {
	t.Helper()
	s := httpapi.New(o)
	huma.Register(s.API(), huma.Operation{OperationID: "put-thing", Method: http.MethodPut, Path: "/things/{id}",
		Tags: []string{"Things"}, Summary: "Put a <thing>"},
		func(_ context.Context, in *thingInput) (*thingOutput, error) {
			out := &thingOutput{}
			out.Body.Bytes = len(in.Body.Payload)
			return out, nil
		})
	get := func(path string, do func() error) {
		httpapi.Register(s.API(), access.Open,
			huma.Operation{OperationID: strings.Trim(path, "/"), Method: http.MethodGet, Path: path}, func(context.Context, *struct{}) (*thingOutput, error) { return nil, do() })
	}
	get("/panics", func() error { panic("canary in a panic") })
	get("/fails", func() error { return errors.New("canary in an error") })
	get("/gone", func() error { return httpapi.Problem(protocol.CodeUnknownTask, "no such task") })
	get("/late", func() error { return fmt.Errorf("canary: %w", context.DeadlineExceeded) })
	get("/away", func() error { return httpapi.Problem(protocol.CodeUnavailable, "try again") })
	return s.Handler()
}

func do(h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func problemOf(t *testing.T, w *httptest.ResponseRecorder) protocol.Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), w.Body.String())
	var p protocol.Problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, w.Code, p.Status)
	return p
}

func TestInvalidRequestsSayWhereAndEchoNothing(t *testing.T) {
	t.Parallel()
	h := serve(t, httpapi.Options{})
	const canary = "cAnArY7341"
	for name, c := range map[string]struct {
		target, body string
		header       []string
		status       int
		location     string
	}{
		"broken JSON":      {body: `{"name": "` + canary + `", }`, status: 400, location: "body"},
		"broken in a word": {body: canary, status: 400, location: "body"},
		"trailing data":    {body: `{"name":"a"} ` + canary, status: 400, location: "body"},
		"no body":          {body: ``, status: 400},
		"not an object":    {body: `"` + canary + `"`, status: 422, location: "body"},
		"null":             {body: `null`, status: 422, location: "body"},
		"pattern":          {body: `{"name":"` + canary + `"}`, status: 422, location: "body.name"},
		"too long": {body: `{"name":"` + strings.Repeat("a", 21) + `"}`, status: 422,
			location: "body.name"},
		"wrong type":            {body: `{"name":"a","count":"` + canary + `"}`, status: 422, location: "body.count"},
		"fraction":              {body: `{"name":"a","count":1.25}`, status: 422, location: "body.count"},
		"out of range":          {body: `{"name":"a","count":73417341}`, status: 422, location: "body.count"},
		"format":                {body: `{"name":"a","mail":"` + canary + `"}`, status: 422, location: "body.mail"},
		"enum":                  {body: `{"name":"a","kind":"` + canary + `"}`, status: 422, location: "body.kind"},
		"duration":              {body: `{"name":"a","wait":"` + canary + `"}`, status: 422, location: "body.wait"},
		"duration as a number":  {body: `{"name":"a","wait":73417341}`, status: 422, location: "body.wait"},
		"label of wrong type":   {body: `{"name":"a","labels":{"x":73417341}}`, status: 422, location: "body.labels.x"},
		"missing":               {body: `{}`, status: 422, location: "body"},
		"unknown field":         {body: `{"name":"a","extra":"` + canary + `"}`, status: 422, location: "body.extra"},
		"field in another case": {body: `{"name":"a","Count":3}`, status: 422, location: "body.Count"},
		"parameter": {target: "/things/x?limit=" + canary, body: `{"name":"a"}`, status: 422,
			location: "query.limit"},
		"unknown parameter": {target: "/things/x?limt=" + canary, body: `{"name":"a"}`, status: 422,
			location: "query.limt"},
		"content type": {body: `{"name":"a"}`, header: []string{"Content-Type", "text/" + canary},
			status: 415},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := c.target
			if target == "" {
				target = "/things/x"
			}
			w := do(h, http.MethodPut, target, c.body, c.header...)
			require.Equal(t, c.status, w.Code, w.Body.String())
			p := problemOf(t, w)
			require.Equal(t, protocol.CodeInvalidRequest, p.Code)
			require.NotEmpty(t, p.Detail)
			if c.location != "" {
				require.NotEmpty(t, p.Errors)
				require.Equal(t, c.location, p.Errors[0].Location)
				require.NotEmpty(t, p.Errors[0].Message)
			}
			require.NotContains(t, strings.ToLower(w.Body.String()), strings.ToLower(canary))
			require.NotContains(t, w.Body.String(), "7341")
		})
	}
}

func TestBrokenJSONIsLocated(t *testing.T) {
	t.Parallel()
	w := do(serve(t, httpapi.Options{}), http.MethodPut, "/things/x", "{\n  \"name\": }")
	require.Equal(t, "not valid JSON at line 2, column 11", problemOf(t, w).Errors[0].Message)
}

func TestBodiesAreUTF8(t *testing.T) {
	t.Parallel()
	server := serve(t, httpapi.Options{})
	for text, want := range map[string]string{
		"{\n\"name\": \"caf\xe9\"}": "line 2 is not UTF-8",
		"\xff\xfe{\x00}\x00":        "is UTF-16: save it as UTF-8",
		"\ufeff{\n  \"name\": }":    "not valid JSON at line 2, column 11",
	} {
		w := do(server, http.MethodPut, "/things/x", text)
		require.Contains(t, problemOf(t, w).Errors[0].Message, want)
	}
}

func TestManyMistakesAreBounded(t *testing.T) {
	t.Parallel()
	var fields []string
	for i := range 500 {
		fields = append(fields, `"`+strings.Repeat("x", i+1)+`": 1`)
	}
	w := do(serve(t, httpapi.Options{}), http.MethodPut, "/things/x", `{"name":"a",`+strings.Join(fields, ",")+`}`)
	p := problemOf(t, w)
	require.Len(t, p.Errors, 20)
	for _, e := range p.Errors {
		require.LessOrEqual(t, len(e.Location), 140)
	}
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	h := serve(t, httpapi.Options{})
	body := func(size int) string {
		const frame = `{"name":"a","payload":""}`
		return `{"name":"a","payload":"` + strings.Repeat("x", size-len(frame)) + `"}`
	}
	require.Equal(t, http.StatusOK, do(h, http.MethodPut, "/things/x", body(httpapi.DefaultMaxBody)).Code,
		"exactly the limit")
	w := do(h, http.MethodPut, "/things/x", body(httpapi.DefaultMaxBody+1))
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	p := problemOf(t, w)
	require.Equal(t, protocol.CodePayloadTooLarge, p.Code)
	require.Contains(t, p.Detail, "262144 bytes")
}

func TestRoutesAndFailures(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.ErrorLevel)
	h := serve(t, httpapi.Options{Logger: zap.New(core)})
	for name, c := range map[string]struct {
		method, path string
		status       int
		code         string
	}{
		"unknown route":   {http.MethodGet, "/canary", 404, protocol.CodeNotFound},
		"trailing slash":  {http.MethodGet, "/healthz/", 404, protocol.CodeNotFound},
		"wrong method":    {http.MethodPost, "/healthz", 405, protocol.CodeMethodNotAllowed},
		"panic":           {http.MethodGet, "/panics", 500, protocol.CodeInternal},
		"plain error":     {http.MethodGet, "/fails", 500, protocol.CodeInternal},
		"out of time":     {http.MethodGet, "/late", 503, protocol.CodeUnavailable},
		"problem":         {http.MethodGet, "/gone", 404, protocol.CodeUnknownTask},
		"temporal's away": {http.MethodGet, "/away", 503, protocol.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			w := do(h, c.method, c.path, "")
			require.Equal(t, c.status, w.Code, w.Body.String())
			require.Equal(t, c.code, problemOf(t, w).Code)
			require.NotContains(t, w.Body.String(), "canary")
			require.NotContains(t, w.Body.String(), ".go")
			require.Equal(t, c.status == 503, w.Header().Get("Retry-After") != "")
			require.Equal(t, c.status == 405, w.Header().Get("Allow") != "")
		})
	}
	require.Equal(t, 1, logs.FilterMessage("panic in a request").Len())
	require.Equal(t, 1, logs.FilterMessage("request failed").Len(), "a plain error is logged")
}

func TestProblemHasAStatusForEveryCode(t *testing.T) {
	t.Parallel()
	for code, status := range map[string]int{
		protocol.CodeInvalidRequest: 422, protocol.CodeUnauthorized: 401, protocol.CodeNotFound: 404,
		protocol.CodeUnknownCluster: 404, protocol.CodeUnknownTask: 404, protocol.CodeUnknownAgent: 404,
		protocol.CodeMethodNotAllowed: 405, protocol.CodeUnknownSession: 409, protocol.CodeFenced: 409,
		protocol.CodeAgentIDInUse: 409, protocol.CodeClusterFull: 409, protocol.CodeClusterExists: 409,
		protocol.CodeClusterNotEmpty: 409, protocol.CodeSuperseded: 409, protocol.CodeConflict: 409,
		protocol.CodePayloadTooLarge: 413, protocol.CodeNotSupported: 501, protocol.CodeUnavailable: 503,
		protocol.CodeInternal: 500, "made_up": 500,
	} {
		body, ok := httpapi.Body(httpapi.Problem(code, "detail"))
		require.True(t, ok)
		require.Equal(t, status, body.Status, code)
		require.NotEmpty(t, body.Title)
	}
}

func TestNotReadySaysWhy(t *testing.T) {
	t.Parallel()
	var away error
	fresh := true
	h := serve(t, httpapi.Options{Registry: prometheus.NewRegistry(),
		Ready:  func(context.Context) error { return away },
		Health: func(h *api.Health) { h.Roles, h.LastHeartbeatSuccess = []string{"hub", "worker"}, &fresh }})
	for _, step := range []struct {
		away  error
		fresh bool
		want  string
	}{
		{nil, true, ""},
		{nil, false, "the hub's own lease is not renewed"},
		{errors.New("canary: dial tcp"), false, "hub, worker cannot reach Temporal"},
		{errors.New("canary: dial tcp"), true, "hub, worker cannot reach Temporal"},
		{nil, true, ""},
	} {
		away, fresh = step.away, step.fresh
		w := do(h, http.MethodGet, "/readyz", "")
		if step.want == "" {
			require.Equal(t, http.StatusOK, w.Code)
			continue
		}
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Contains(t, w.Body.String(), "not ready: "+step.want)
		require.NotContains(t, w.Body.String(), "canary")
	}
}

// identified lets everybody in as somebody.
type identified access.Identity

func (i identified) Admit(
	r *http.Request, _ httpapi.Route, _ map[string]string,
) (context.Context, func(int), error) {
	return access.With(r.Context(), access.Identity(i)), nil, nil
}

// TestOnlyWhoSeesTheFleetHearsOfIt asks how a process stands as those who may not see it, and as those who may.
func TestOnlyWhoSeesTheFleetHearsOfIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		id    access.Identity
		hears bool
	}{
		"nobody":            {access.Identity{}, false},
		"a tenant's":        {access.Identity{Kind: api.IdentityToken, Role: api.RoleOperator, Tenant: "acme"}, false},
		"an agent's":        {access.Identity{Kind: api.IdentityJoin, Joins: true, Cluster: "build"}, false},
		"a viewer":          {access.Identity{Kind: api.IdentityToken, Role: api.RoleViewer}, true},
		"a certificate":     {access.Identity{Kind: api.IdentityCertificate, Role: api.RoleAdmin}, true},
		"security is off":   {access.Local, true},
		"an agent's by TLS": {access.Identity{Kind: api.IdentityCertificate, Joins: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agents := 7
			h := serve(t, httpapi.Options{Gate: identified(c.id), Version: "1.2.3",
				Health: func(h *api.Health) { h.HubID, h.Agents, h.Roles = "hub-1", &agents, []string{"hub"} }})
			w := do(h, http.MethodGet, "/health", "")
			require.Equal(t, http.StatusOK, w.Code)
			var said api.Health
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &said))
			require.Equal(t, "healthy", said.Status)
			want := api.Health{Status: said.Status, UptimeSeconds: said.UptimeSeconds, MetadataStoreConnected: true}
			if c.hears {
				want.Version, want.HubID, want.Agents, want.Roles = "1.2.3", "hub-1", &agents, []string{"hub"}
			}
			require.Equal(t, want, said)
		})
	}
}

func TestSystemEndpoints(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	ready := errors.New("canary: not yet")
	h := serve(t, httpapi.Options{Registry: registry, Version: "1.2.3",
		Ready: func(context.Context) error { return ready }})

	health := do(h, http.MethodGet, "/healthz", "")
	require.JSONEq(t, `{"status":"ok"}`, health.Body.String())
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Referrer-Policy": "no-referrer"} {
		require.Equal(t, want, health.Header().Get(name))
	}
	w := do(h, http.MethodGet, "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.NotContains(t, w.Body.String(), "canary")
	ready = nil
	require.Equal(t, http.StatusOK, do(h, http.MethodGet, "/readyz", "").Code)

	do(h, "CANARY", "/nowhere", "")
	do(h, http.MethodPut, "/things/some-id", `{"name":"a"}`)
	text := do(h, http.MethodGet, "/metrics", "").Body.String()
	require.Contains(t, text,
		`mainstay_http_request_duration_seconds_count{method="PUT",route="/things/{id}",status="200"} 1`)
	require.Contains(t, text,
		`mainstay_http_request_duration_seconds_count{method="other",route="unmatched",status="404"} 1`)
	require.NotContains(t, text, "some-id")
	require.NotContains(t, text, "CANARY")
}

func TestOpenAPIAndDocs(t *testing.T) {
	t.Parallel()
	h := serve(t, httpapi.Options{Version: "1.2.3"})
	var spec struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]any
	}
	require.NoError(t, json.Unmarshal(do(h, http.MethodGet, "/openapi.json", "").Body.Bytes(), &spec))
	require.True(t, strings.HasPrefix(spec.OpenAPI, "3.1"))
	require.Contains(t, spec.Paths, "/things/{id}")

	w := do(h, http.MethodGet, "/docs", "")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "Put a &lt;thing&gt;")
	require.Contains(t, w.Body.String(), "/things/{id}")
	require.NotContains(t, w.Body.String(), "<script")
	require.NotContains(t, w.Body.String(), "http://")
	require.NotContains(t, w.Body.String(), "https://")
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	css := do(h, http.MethodGet, "/docs/docs.css", "")
	require.Equal(t, http.StatusOK, css.Code)
	require.Contains(t, css.Header().Get("Content-Type"), "text/css")
}

// TestOverTheWire has a real connection: deadlines can be set there, and a body that nobody reads does not hold it.
func TestOverTheWire(t *testing.T) {
	t.Parallel()
	s := httpapi.New(httpapi.Options{})
	server := httptest.NewUnstartedServer(s.Handler())
	server.Config = s.HTTPServer()
	require.NotZero(t, server.Config.ReadHeaderTimeout)
	require.Greater(t, server.Config.WriteTimeout.Seconds(), 60.0, "waits are held for up to a minute")
	server.Start()
	defer server.Close()
	for range 2 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/healthz",
			strings.NewReader("unread"))
		require.NoError(t, err)
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
}
