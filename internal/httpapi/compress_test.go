package httpapi_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/protocol"
)

type textInput struct {
	Size int `query:"size"`
}

type textOutput struct {
	ETag string `header:"ETag"`
	Body struct {
		Text string `json:"text"`
	}
}

func textOf(_ context.Context, in *textInput) (*textOutput, error) {
	if in.Size < 0 {
		return nil, httpapi.Problem(protocol.CodeConflict, strings.Repeat("x", -in.Size))
	}
	out := &textOutput{ETag: `"r1"`}
	out.Body.Text = strings.Repeat("x", in.Size)
	return out, nil
}

// textServer answers as much text as it is asked for.
func textServer(t *testing.T) *httptest.Server {
	t.Helper()
	registry := prometheus.NewRegistry()
	for i := range 200 {
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "x_" + strings.Repeat("y", i)}))
	}
	s := httpapi.New(httpapi.Options{Registry: registry})
	httpapi.Register(s.API(), access.View, huma.Operation{OperationID: "text", Method: http.MethodGet,
		Path: "/api/text"}, textOf)
	httpapi.Register(s.API(), access.View, huma.Operation{OperationID: "poll", Method: http.MethodPost,
		Path: "/api/text"}, textOf)
	httpapi.Register(s.API(), access.View, huma.Operation{OperationID: "watch", Method: http.MethodGet,
		Path:      "/api/watch",
		Responses: map[string]*huma.Response{"200": {Content: map[string]*huma.MediaType{"text/event-stream": {}}}}},
		func(context.Context, *struct{}) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: func(c huma.Context) {
				c.SetHeader("Content-Type", "text/event-stream")
				_, _ = io.WriteString(c.BodyWriter(), "data: 1\n\n")
				c.BodyWriter().(http.Flusher).Flush()
				<-c.Context().Done()
			}}, nil
		})
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return server
}

// plainClient does not take the compression off by itself.
func plainClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestLargeAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	server, client := textServer(t), plainClient(t)
	const large, small = "/api/text?size=5000", "/api/text?size=1000"
	for name, c := range map[string]struct {
		method, path, accept string
		status               int
		compressed           bool
		tag                  string // "any": there is one
	}{
		"large":              {http.MethodGet, large, "gzip", 200, true, `"r1-gzip"`},
		"a browser's":        {http.MethodGet, large, "gzip, deflate, br, zstd", 200, true, `"r1-gzip"`},
		"HEAD":               {http.MethodHead, large, "gzip", 200, true, `"r1-gzip"`},
		"HEAD, not accepted": {http.MethodHead, large, "", 200, false, `"r1"`},
		"not accepted":       {http.MethodGet, large, "", 200, false, `"r1"`},
		"refused":            {http.MethodGet, large, "gzip;q=0, identity", 200, false, `"r1"`},
		"another one":        {http.MethodGet, large, "zstd, br", 200, false, `"r1"`},
		"small":              {http.MethodGet, small, "gzip", 200, false, `"r1"`},
		"a problem":          {http.MethodGet, "/api/text?size=-5000", "gzip", 409, true, ""},
		"a small problem":    {http.MethodGet, "/api/text?size=-1", "gzip", 409, false, ""},
		"an agent's poll":    {http.MethodPost, large, "gzip", 200, false, `"r1"`},
		"the document":       {http.MethodGet, "/openapi.json", "gzip", 200, true, "any"},
		"the page of it":     {http.MethodGet, "/docs", "gzip", 200, true, "any"},
		"no such path":       {http.MethodGet, "/api/nothing", "gzip", 404, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.path, nil)
			require.NoError(t, err)
			if c.accept != "" {
				request.Header.Set("Accept-Encoding", c.accept)
			}
			answer, err := client.Do(request)
			require.NoError(t, err)
			defer func() { require.NoError(t, answer.Body.Close()) }()
			require.Equal(t, c.status, answer.StatusCode)
			require.Equal(t, c.compressed, answer.Header.Get("Content-Encoding") == "gzip")
			if tag := answer.Header.Get("ETag"); c.tag == "any" {
				require.NotEmpty(t, tag)
			} else {
				require.Equal(t, c.tag, tag)
			}
			if c.method != http.MethodPost {
				require.Contains(t, answer.Header.Values("Vary"), "Accept-Encoding")
			}
			if c.method == http.MethodHead {
				return
			}
			body := io.Reader(answer.Body)
			if c.compressed {
				body, err = gzip.NewReader(answer.Body)
				require.NoError(t, err)
			}
			if c.path == "/docs" {
				return
			}
			var read map[string]any
			require.NoError(t, json.NewDecoder(body).Decode(&read))
			if c.status == 200 && c.path == large {
				require.Len(t, read["text"], 5000)
			}
		})
	}
}

// A stream's first event must not wait until there is enough to compress, and /metrics is compressed once, by itself.
func TestStreamsAndMetricsAreLeftAlone(t *testing.T) {
	t.Parallel()
	server, client := textServer(t), plainClient(t)
	get := func(path string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		request.Header.Set("Accept-Encoding", "gzip")
		answer, err := client.Do(request)
		require.NoError(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer
	}
	stream := get("/api/watch")
	require.Empty(t, stream.Header.Get("Content-Encoding"))
	first := make([]byte, 9)
	_, err := io.ReadFull(stream.Body, first)
	require.NoError(t, err)
	require.Equal(t, "data: 1\n\n", string(first))

	metrics, err := gzip.NewReader(get("/metrics").Body)
	require.NoError(t, err)
	text, err := io.ReadAll(metrics)
	require.NoError(t, err)
	require.Contains(t, string(text), "# TYPE x_y gauge")
}
