package httpapi_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"mainstay.dev/mainstay/internal/httpapi"
)

// TestBodiesWithoutALengthEndTheConnection sends what a proxy may read as one request and the server as two: a body in
// chunks that also has a length, and another request behind it.
func TestBodiesWithoutALengthEndTheConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(serve(t, httpapi.Options{}))
	t.Cleanup(server.Close)
	for name, c := range map[string]struct {
		headers, body string
		answers       int
	}{
		"a length":            {"Content-Length: 16\r\n", `{"name":"thing"}`, 2},
		"chunks":              {"Transfer-Encoding: chunked\r\n", "10\r\n{\"name\":\"thing\"}\r\n0\r\n\r\n", 1},
		"chunks and a length": {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "10\r\n{\"name\":\"thing\"}\r\n0\r\n\r\n", 1},
	} {
		connection, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		const head = " HTTP/1.1\r\nHost: x\r\n"
		_, err = io.WriteString(connection, "PUT /things/a"+head+"Content-Type: application/json\r\n"+c.headers+"\r\n"+c.body+
			"GET /gone"+head+"Connection: close\r\n\r\n")
		require.NoError(t, err)
		answers, _ := io.ReadAll(connection) // a reset is fine, too
		require.NoError(t, connection.Close())
		require.Equal(t, c.answers, strings.Count(string(answers), "HTTP/1.1 "), "%s: %s", name, answers)
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.ErrorLevel)
	h := serve(t, httpapi.Options{Logger: zap.New(core)})
	for _, c := range []struct {
		name, sent string
		kept       bool
	}{
		{"none", "", false},
		{"a client's own", "Root=1-67891233/abc_DEF.9", true},
		{"two lines", "a\nb", false},
		{"quotes", `a"b`, false},
		{"long", strings.Repeat("x", 129), false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/panics", nil)
		r.Header.Set("X-Request-Id", c.sent)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		id := w.Header().Get("X-Request-Id")
		require.NotEmpty(t, id, c.name)
		require.Equal(t, c.kept, id == c.sent, c.name)
		entries := logged.TakeAll()
		require.NotEmpty(t, entries, c.name)
		logged := entries[0].ContextMap()
		require.NotEqual(t, c.sent, logged["request_id"], "no client can give two requests one name in the log")
		if c.kept {
			require.Equal(t, c.sent, logged["client_request_id"], c.name)
		} else {
			require.Equal(t, id, logged["request_id"], c.name)
			require.NotContains(t, logged, "client_request_id", c.name)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/nowhere", nil))
	require.NotEmpty(t, w.Header().Get("X-Request-Id"), "problems too")
}
