package devserver

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// startFront starts a front with the key "key" before a Temporal that knows an echo, and returns its address.
func startFront(t *testing.T) string {
	t.Helper()
	return startFrontAt(t, func(l net.Listener) net.Listener { return l })
}

func startFrontAt(t *testing.T, at func(net.Listener) net.Listener) string {
	t.Helper()
	certified := httptest.NewTLSServer(nil)
	t.Cleanup(certified.Close)
	temporal := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certified.TLS.Certificates[0])),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			if m, _ := grpc.MethodFromServerStream(s); m != "/a/echo" {
				return status.Error(codes.NotFound, "none")
			}
			var m wrapperspb.BytesValue
			return errors.Join(s.RecvMsg(&m), s.SendMsg(&m))
		}))
	t.Cleanup(temporal.Stop)
	listeners := make([]net.Listener, 2)
	for n := range listeners {
		var err error
		listeners[n], err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
	}
	go func() { _ = temporal.Serve(listeners[0]) }()
	own := &tls.Config{InsecureSkipVerify: true}
	server := front(at(listeners[1]), listeners[0].Addr().String(), "key", own)
	t.Cleanup(func() { _ = server.Close() })
	return listeners[1].Addr().String()
}

// TestErrorsOfTemporalStayErrors: gRPC answers an error with headers that end the stream. A client does not see the
// error where the end comes later.
func TestErrorsOfTemporalStayErrors(t *testing.T) {
	t.Parallel()
	address := startFront(t)
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer key")
	var callers errgroup.Group
	for range 4 {
		callers.Go(func() error {
			for range 500 {
				err := c.Invoke(ctx, "/a/b", &emptypb.Empty{}, &emptypb.Empty{})
				if status.Code(err) != codes.NotFound {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, callers.Wait())
}

// TestLargeMessagesGetThrough: what is read before the key is bounded, and what is read after it is not.
func TestLargeMessagesGetThrough(t *testing.T) {
	t.Parallel()
	c, err := grpc.NewClient(startFront(t), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer key", "large",
		strings.Repeat("~", 15<<10)) // nearly all that is read before the key
	sent := wrapperspb.Bytes(bytes.Repeat([]byte("large"), 4<<20/5-20)) // gRPC takes 4 MiB
	var calls errgroup.Group
	for range 8 {
		calls.Go(func() error {
			var got wrapperspb.BytesValue
			err := c.Invoke(ctx, "/a/echo", sent, &got)
			if err == nil && !bytes.Equal(sent.GetValue(), got.GetValue()) {
				return errors.New("another message came back")
			}
			return err
		})
	}
	require.NoError(t, calls.Wait())
}

// TestWithoutTheKeyLittleIsRead has strangers send what is no request, or more of one than its headers.
func TestWithoutTheKeyLittleIsRead(t *testing.T) {
	t.Parallel()
	address := startFront(t)
	for name, send := range map[string]func(*http2.Framer) error{
		"nothing": func(*http2.Framer) error { return nil },
		"pings": func(f *http2.Framer) error {
			for range 5000 {
				if err := f.WritePing(false, [8]byte{}); err != nil {
					return err
				}
			}
			return nil
		},
		"a large frame": func(f *http2.Framer) error { return f.WriteRawFrame(99, 0, 0, make([]byte, 64<<10)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			framer := stranger(t, address, 0, send)
			answered := 0
			for {
				frame, err := framer.ReadFrame()
				if err != nil {
					require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection stays open")
					break
				}
				if ping, ok := frame.(*http2.PingFrame); ok && ping.IsAck() {
					answered++
				}
			}
			require.Less(t, answered, keylessReads)
		})
	}
}

// followed is a listener that counts the connections of which nothing is kept in memory.
type followed struct {
	net.Listener
	gone *atomic.Int32
}

func (f followed) Accept() (net.Conn, error) {
	conn, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	own := &struct{ net.Conn }{conn}
	runtime.AddCleanup(own, func(gone *atomic.Int32) { gone.Add(1) }, f.gone)
	return own, nil
}

// TestNothingIsKeptOfStrangers has strangers leave while their requests are under way.
func TestNothingIsKeptOfStrangers(t *testing.T) {
	t.Parallel()
	var gone atomic.Int32
	address := startFrontAt(t, func(l net.Listener) net.Listener { return followed{l, &gone} })
	const strangers = 100
	for range strangers {
		refusalsOf(stranger(t, address, 40))
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return gone.Load() == strangers
	}, time.Minute, 50*time.Millisecond)
}

// stranger opens a connection that asks so many times without the key, and then sends more.
func stranger(t *testing.T, address string, requests int, more ...func(*http2.Framer) error) *http2.Framer {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	var asks bytes.Buffer
	asks.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&asks, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
	require.NoError(t, framer.WriteSettings())
	for n := range requests {
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/a/b"}, {":authority", "a"},
			{"authorization", "Bearer wrong"}} {
			require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}))
		}
		require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1),
			BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}))
	}
	for _, send := range more {
		require.NoError(t, send(framer))
	}
	_, err = conn.Write(asks.Bytes()) // in one piece: the front closes the connection soon
	require.NoError(t, err)
	return framer
}

// refusalsOf reads to the end of the connection and returns how many requests were answered with "permission denied".
func refusalsOf(framer *http2.Framer) (refused int) {
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return refused
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok && slices.ContainsFunc(h.Fields, func(f hpack.HeaderField) bool {
			return f.Name == "grpc-status" && f.Value == "7"
		}) {
			refused++
		}
	}
}

// TestWithoutTheKeyAConnectionEnds: who has no key hears so, and keeps no connection.
func TestWithoutTheKeyAConnectionEnds(t *testing.T) {
	t.Parallel()
	address := startFront(t)
	require.Equal(t, 1, refusalsOf(stranger(t, address, 1)))
	require.Less(t, refusalsOf(stranger(t, address, 2000)), 20)
}

// TestStrangersKeepNobodyOut: whoever has the key gets in, however many connections others hold.
func TestStrangersKeepNobodyOut(t *testing.T) {
	t.Parallel()
	address := startFront(t)
	first := stranger(t, address, 0)
	for range maxStrangers {
		_, err := stranger(t, address, 0).ReadFrame() // the server's settings
		require.NoError(t, err)
	}
	require.Zero(t, refusalsOf(first), "it reads to the end: the oldest has made room")
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	for range 2 {
		err := c.Invoke(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer key"), "/a/b",
			&emptypb.Empty{}, &emptypb.Empty{})
		require.Equal(t, codes.NotFound, status.Code(err))
		for range maxStrangers + 1 {
			stranger(t, address, 0)
		}
	}
}
