package unread

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// reader is a client that reads as much of its answers as window lets the server send.
type reader struct {
	t      *testing.T
	framer *http2.Framer
	ended  map[uint32]bool // streams; true: the server reset it
}

func newReader(t *testing.T, server *httptest.Server, window uint32) *reader {
	t.Helper()
	conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true,
		NextProtos: []string{"h2"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	c := &reader{t: t, framer: http2.NewFramer(conn, conn), ended: map[uint32]bool{}}
	require.NoError(t, c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	return c
}

func (c *reader) ask(stream uint32) {
	c.t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/"}, {":authority", "a"}} {
		require.NoError(c.t, encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	require.NoError(c.t, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(),
		EndHeaders: true, EndStream: true}))
}

// read reads until so many streams have ended, or for a while.
func (c *reader) read(streams int) {
	c.t.Helper()
	for len(c.ended) < streams {
		frame, err := c.framer.ReadFrame()
		require.NoError(c.t, err)
		switch f := frame.(type) {
		case *http2.RSTStreamFrame:
			c.ended[f.StreamID] = true
		case *http2.DataFrame:
			if f.StreamEnded() {
				c.ended[f.StreamID] = false
			}
		}
	}
}

func TestAnswersThatNobodyReads(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		perAddress, total int
		patience          time.Duration
		window            uint32
		first             int // of 10 streams, how many are reset before any has waited for long
		reset             int // and in the end
		known             bool
	}{
		"they are read":                  {2, 2, time.Minute, 1 << 16, 0, 0, false},
		"too many of an address":         {3, 100, time.Minute, 0, 7, 7, false},
		"too many of all":                {100, 4, time.Minute, 0, 6, 6, false},
		"too many of all who are known":  {1, 4, time.Minute, 0, 6, 6, true},
		"few, which wait for too long":   {100, 100, 100 * time.Millisecond, 0, 10, 10, false},
		"many, and those that may do so": {3, 100, 300 * time.Millisecond, 0, 7, 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := &Answers{perAddress: tt.perAddress, total: tt.total, patience: tt.patience, of: map[string]int{}}
			server := httptest.NewUnstartedServer(answers.Bound(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					if tt.known {
						Known(r.Context())
					}
					_, _ = io.WriteString(w, "no")
				})))
			server.EnableHTTP2 = true
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)
			c := newReader(t, server, tt.window)
			for n := range 10 {
				c.ask(uint32(2*n + 1))
				if tt.window > 0 {
					c.read(n + 1)
				}
			}
			c.read(tt.first)
			c.read(tt.reset)
			reset := 0
			for _, r := range c.ended {
				if r {
					reset++
				}
			}
			require.Equal(t, tt.reset, reset)
			require.Eventually(t, func() bool {
				answers.mu.Lock()
				defer answers.mu.Unlock()
				return answers.n+answers.known == 10-len(c.ended) && (answers.n == 0) == (len(answers.of) == 0)
			}, 10*time.Second, time.Millisecond)
		})
	}
}
