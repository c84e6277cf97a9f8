package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"mainstay.dev/mainstay/httpapi"
)

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
		require.Equal(t, id, entries[0].ContextMap()["request_id"], "the log names the request")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/nowhere", nil))
	require.NotEmpty(t, w.Header().Get("X-Request-Id"), "problems too")
}
