package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"mainstay.dev/mainstay/internal/access"
	"mainstay.dev/mainstay/internal/httpapi"
)

// TestBrokenBodiesAreTheClientsFault has bodies that cannot be read to their end: nothing of it is an error of ours.
func TestBrokenBodiesAreTheClientsFault(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	s := httpapi.New(httpapi.Options{Logger: zap.New(core)})
	httpapi.Register(s.API(), access.Open, huma.Operation{OperationID: "take", Method: http.MethodPost, Path: "/take"},
		func(context.Context, *struct{ Body map[string]string }) (*struct{}, error) { return nil, nil })
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	const chunked = "Transfer-Encoding: chunked\r\n\r\n"
	for name, rest := range map[string]string{
		"a bare line feed": chunked + "2;x\n{}\r\n0\r\n\r\n",
		"no size":          chunked + "0x\r\n{}\r\n0\r\n\r\n",
		"no chunk":         chunked + "\r\n\r\n",
		"cut short":        "Content-Length: 100\r\n\r\n{",
		"cut in a chunk":   chunked + "64\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			_, err = fmt.Fprint(conn, "POST /take HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+rest)
			require.NoError(t, err)
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			answer, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(string(answer), "HTTP/1.1 400 "), "%s", answer)
			require.Zero(t, logs.Len(), logs.All())
		})
	}
}

// TestErrorsOfConnectionsFillNoLog has net/http say very much in a moment, as when handshakes fail.
func TestErrorsOfConnectionsFillNoLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		said := httpapi.New(httpapi.Options{Logger: zap.New(core)}).HTTPServer().ErrorLog
		for range 1000 {
			said.Printf("TLS handshake error from %s", "127.0.0.1:1")
		}
		require.Equal(t, 100, logs.Len())
		require.Equal(t, "TLS handshake error from 127.0.0.1:1", logs.All()[0].Message)
		<-time.After(time.Second)
		said.Print("more")
		require.EqualValues(t, 900, logs.All()[100].ContextMap()["left_out"])
	})
}

// TestSlowClients has clients that stop in the middle of a request: they are answered or cut off, and hold nothing.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	s := httpapi.New(httpapi.Options{})
	huma.Register(s.API(), huma.Operation{OperationID: "slow", Method: http.MethodPost, Path: "/slow",
		BodyReadTimeout: 200 * time.Millisecond},
		func(context.Context, *struct{ Body map[string]string }) (*struct{}, error) { return nil, nil })
	huma.Register(s.API(), huma.Operation{OperationID: "usual", Method: http.MethodPost, Path: "/usual"},
		func(context.Context, *struct{ Body map[string]string }) (*struct{}, error) { return nil, nil })
	require.Equal(t, 30*time.Second, s.API().OpenAPI().Paths["/usual"].Post.BodyReadTimeout,
		"every operation bounds how long its body may take")

	server := s.HTTPServer()
	require.NotZero(t, server.IdleTimeout)
	require.NotZero(t, server.WriteTimeout)
	server.ReadHeaderTimeout = 200 * time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-done })

	for name, c := range map[string]struct{ sends, answered string }{
		"body": {"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
			"HTTP/1.1 408 Request Timeout"},
		"headers": {"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Ty", "HTTP/1.1 4"},
		"nothing": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", listener.Addr().String())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			_, err = fmt.Fprint(conn, c.sends)
			require.NoError(t, err)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(15*time.Second)))
			answer, err := io.ReadAll(conn)
			require.NoError(t, err, "the server must end the connection")
			require.True(t, strings.HasPrefix(string(answer), c.answered), "%s", answer)
		})
	}
}
