package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
)

// listInput has a parameter of one value, and one that may be repeated.
type listInput struct {
	Status string   `query:"status"`
	Label  []string `query:"label,explode"`
}

func listServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httpapi.New(httpapi.Options{})
	httpapi.Register(s.API(), access.View, huma.Operation{OperationID: "list", Method: http.MethodGet, Path: "/list"},
		func(context.Context, *listInput) (*httpapi.StatusOutput, error) { return &httpapi.StatusOutput{}, nil })
	httpapi.Register(s.API(), access.View, huma.Operation{OperationID: "make", Method: http.MethodPost, Path: "/make"},
		func(context.Context, *struct{ Body map[string]any }) (*httpapi.StatusOutput, error) {
			return &httpapi.StatusOutput{}, nil
		})
	httpapi.Register(s.API(), access.View, huma.Operation{OperationID: "watch", Method: http.MethodGet, Path: "/watch",
		Responses: map[string]*huma.Response{"200": {Content: map[string]*huma.MediaType{"text/event-stream": {}}}}},
		func(context.Context, *struct{}) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: func(c huma.Context) { <-c.Context().Done() }}, nil
		})
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return server
}

func TestHeadIsGetWithoutABody(t *testing.T) {
	t.Parallel()
	server := listServer(t)
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/list": 200, "/list?nope=1": 422, "/make": 405, "/canary": 404,
		"/openapi.json": 200,
		"/watch":        405, // it would not end
	} {
		head, err := http.Head(server.URL + path)
		require.NoError(t, err, path)
		require.NoError(t, head.Body.Close())
		require.Equal(t, want, head.StatusCode, path)
		if want == 405 {
			continue
		}
		get, err := http.Get(server.URL + path)
		require.NoError(t, err)
		require.NoError(t, get.Body.Close())
		require.Equal(t, get.StatusCode, head.StatusCode, path)
		require.Equal(t, get.Header.Get("Content-Type"), head.Header.Get("Content-Type"), path)
	}
}

func TestAllowNamesHead(t *testing.T) {
	t.Parallel()
	h := listServer(t).Config.Handler
	for path, want := range map[string]string{"/list": "GET, HEAD", "/make": "POST", "/watch": "GET"} {
		w := do(h, http.MethodDelete, path, "")
		require.Equal(t, 405, w.Code, path)
		require.Equal(t, want, w.Header().Get("Allow"), path)
	}
}

func TestCompressedBodiesAreRefusedAsSuch(t *testing.T) {
	t.Parallel()
	h := listServer(t).Config.Handler
	for encoding, want := range map[string]int{"gzip": 415, "identity": 200, "": 200} {
		r := httptest.NewRequest(http.MethodPost, "/make", http.NoBody)
		if want == 200 {
			r = httptest.NewRequest(http.MethodPost, "/make", strings.NewReader(`{"a": 1}`))
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Content-Encoding", encoding)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, encoding)
		if want == 415 {
			require.Contains(t, problemOf(t, w).Detail, "Content-Encoding")
		}
	}
}

func TestNumbersOutOfRangeAreNamedAsSuch(t *testing.T) {
	t.Parallel()
	w := do(listServer(t).Config.Handler, http.MethodPost, "/make", `{"a": 1e400}`)
	require.Equal(t, 422, w.Code)
	require.Contains(t, problemOf(t, w).Errors[0].Message,
		"a number that is too large, or a value of the wrong type, ends at line 1, column")
}
