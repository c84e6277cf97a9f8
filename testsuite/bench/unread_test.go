package bench

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWithholdLeavesAnswersUnread attacks servers that wait until their answers are read: many are soon under way, and
// none ends.
func TestWithholdLeavesAnswersUnread(t *testing.T) {
	t.Parallel()
	for name, https := range map[string]bool{"a body, over https": true, "headers, at Temporal's port": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var waiting, ended atomic.Int64
			many := make(chan int64, 1)
			reached := sync.OnceFunc(func() { many <- ended.Load() })
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if waiting.Add(1) >= serveStreams {
					reached()
				}
				defer waiting.Add(-1)
				defer ended.Add(1)
				w.Header().Set("Content-Type", "text/plain")
				if https {
					_, _ = io.WriteString(w, "no")
				}
				_ = http.NewResponseController(w).Flush()
			}))
			server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: temporalStreams}
			i := &Installation{temporal: server.Listener.Addr().String()}
			if https {
				server.EnableHTTP2 = true
				server.StartTLS()
				i.url, i.https = server.URL, server.Client().Transport.(*http.Transport).TLSClientConfig
			} else {
				server.Config.Protocols = new(http.Protocols)
				server.Config.Protocols.SetUnencryptedHTTP2(true)
				server.Start()
			}
			t.Cleanup(server.Close)
			ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
			defer stop()
			a := attack{method: http.MethodGet, path: "/", unread: 1 << 10, https: https}
			attacked := make(chan struct{})
			go func() {
				defer close(attacked)
				a.withhold(ctx, i, func(string) {})
			}()
			select {
			case n := <-many:
				require.Zero(t, n)
			case <-attacked:
				t.Errorf("only %d answers are under way", waiting.Load())
			}
			stop()
			<-attacked
			require.Eventually(t, func() bool { return waiting.Load() == 0 }, 30*time.Second, time.Millisecond)
		})
	}
}
