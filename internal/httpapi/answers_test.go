package httpapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
)

// fullGate lets everybody in and has no room for answers.
type fullGate struct{ asked int64 }

func (g *fullGate) Admit(r *http.Request, _ httpapi.Route, _ map[string]string) (context.Context, func(int), error) {
	return httpapi.WithReserve(r.Context(), func(bytes int64) error {
		g.asked = bytes
		return httpapi.RetryAfter(time.Second, "too many")
	}), nil, nil
}

// A large answer waits in memory for its client, so it is counted. What was changed is told all the same.
func TestLargeAnswersAreCounted(t *testing.T) {
	t.Parallel()
	gate := &fullGate{}
	s := httpapi.New(httpapi.Options{Gate: gate})
	type output struct{ Body struct{ Text string } }
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		httpapi.Register(s.API(), access.Open, huma.Operation{OperationID: method, Method: method, Path: "/text"},
			func(_ context.Context, in *struct {
				Size int `query:"size"`
			}) (*output, error) {
				out := &output{}
				out.Body.Text = strings.Repeat("x", in.Size)
				return out, nil
			})
	}
	ask := func(method, target string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(method, target, nil))
		return w
	}
	require.Equal(t, http.StatusOK, ask(http.MethodGet, "/text?size=1000").Code)
	require.Equal(t, http.StatusOK, ask(http.MethodPost, "/text?size=1000000").Code)
	require.Zero(t, gate.asked)
	w := ask(http.MethodGet, "/text?size=1000000")
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Contains(t, problemOf(t, w).Detail, "too many")
	require.InDelta(t, 1_000_000, gate.asked, 100)
}

// A client that never sends the rest of a body must not keep its connection.
func TestAnUnfinishedBodyEndsTheConnection(t *testing.T) {
	t.Parallel()
	s := httpapi.New(httpapi.Options{Gate: &fullGate{}})
	server := httptest.NewUnstartedServer(s.Handler())
	server.Config = s.HTTPServer()
	server.Start()
	defer server.Close()
	for name, request := range map[string]string{
		"length": "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 38\r\n\r\nabc",
		"chunks": "GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			_, err = io.WriteString(conn, request)
			require.NoError(t, err)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
			answer, err := io.ReadAll(conn)
			require.NoError(t, err, "the server closes the connection")
			require.Contains(t, string(answer), "200 OK")
		})
	}
}

// Streams extend the time for their answer while they go on, also behind the gate.
func TestStreamsCanExtendTheirDeadline(t *testing.T) {
	t.Parallel()
	s := httpapi.New(httpapi.Options{Gate: &fullGate{}})
	s.Handle(access.Open, http.MethodGet, "/stream", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute))
		assert.NoError(t, err)
	}))
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	response, err := server.Client().Get(server.URL + "/stream")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}
