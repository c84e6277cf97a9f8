package bench

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWithholdLeavesAnswersUnread attacks servers whose answers nobody reads: of HTTP/1.1 the first that does not fit
// into the buffers stays under way, and over HTTP/2 many do.
func TestWithholdLeavesAnswersUnread(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		temporal bool
		body     string
		waiting  int64
	}{
		"a body":                      {false, strings.Repeat("no", 4<<20), 1},
		"headers, at Temporal's port": {true, "", 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var waiting atomic.Int64
			many := make(chan struct{})
			reached := sync.OnceFunc(func() { close(many) })
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if waiting.Add(1) >= tt.waiting {
					reached()
				}
				defer waiting.Add(-1)
				w.Header().Set("Cache-Control", "no-store") // Flush of a body without bytes waits only for headers of ours
				_, _ = io.WriteString(w, tt.body)
				_ = http.NewResponseController(w).Flush()
			}))
			server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: temporalStreams}
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetHTTP1(true)
			server.Config.Protocols.SetUnencryptedHTTP2(tt.temporal)
			server.Start()
			t.Cleanup(server.Close)
			i := &Installation{temporal: server.Listener.Addr().String(), url: server.URL}
			ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
			defer stop()
			a := attack{method: http.MethodGet, path: "/", unread: 1 << 10, temporal: tt.temporal}
			attacked := make(chan struct{})
			go func() {
				defer close(attacked)
				a.withhold(ctx, i, func(string) {})
			}()
			select {
			case <-many:
			case <-attacked:
				t.Errorf("only %d answers are under way", waiting.Load())
			}
			stop()
			<-attacked
			require.Eventually(t, func() bool { return waiting.Load() == 0 }, 30*time.Second, time.Millisecond)
		})
	}
}
