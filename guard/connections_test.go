package guard

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/httpapi"
)

// dialled is a connection from an address.
type dialled struct {
	net.Conn
	address string
	closed  bool
}

func (d *dialled) RemoteAddr() net.Addr {
	address, _ := net.ResolveTCPAddr("tcp", d.address)
	return address
}

func (d *dialled) Close() error {
	d.closed = true
	return nil
}

func TestConnectionsHaveABound(t *testing.T) {
	t.Parallel()
	const here, there, next, neighbour = "192.0.2.1:1", "192.0.2.2:1", "[2001:db8::1]:1", "[2001:db8::2]:1"
	type step struct {
		address string
		proven  bool // its first request says who it is
		refused bool
	}
	for name, steps := range map[string][]step{
		"an address has its share": {{here, false, false}, {here, false, false}, {here, false, false},
			{here, false, true}, {there, false, false}},
		"an IPv6 host has one share": {{next, false, false}, {neighbour, false, false}, {next, false, false},
			{neighbour, false, true}},
		"agents behind one address have none": {{here, true, false}, {here, true, false}, {here, true, false},
			{here, true, false}, {here, true, false}, {here, false, false}},
		"there is always one for the next address": {{here, false, false}, {here, false, false}, {here, false, false},
			{there, false, false}, {there, false, false}, {there, false, false}, {next, false, false},
			{next, false, true}, {"192.0.2.4:1", false, false}, {"192.0.2.5:1", false, true}},
		"all have a bound": {{here, true, false}, {here, true, false}, {here, true, false}, {here, true, false},
			{here, true, false}, {here, true, false}, {here, true, false}, {here, true, false}, {there, true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.WarnLevel)
			c := NewConnections(true, zap.New(core))
			c.most, c.mostStrangers = 8, 3
			refused := 0
			var open []net.Conn
			for i, s := range steps {
				conn := &dialled{address: s.address}
				ctx := c.begin(t.Context(), conn)
				require.Equal(t, s.refused, conn.closed, "connection %d", i+1)
				if s.proven {
					proven(ctx)
					proven(ctx)
				}
				if s.refused {
					refused++
				}
				open = append(open, conn)
			}
			require.Equal(t, min(refused, 1), logs.Len(), "a flood does not become one in the log")
			for _, conn := range open {
				c.end(conn)
				c.end(conn)
			}
			require.Empty(t, c.open)
			require.Empty(t, c.strangers, "nothing is kept of who has gone")
		})
	}
}

func TestWithoutSecurityAnAddressHasNoBoundOfItsOwn(t *testing.T) {
	t.Parallel()
	c := NewConnections(false, zap.NewNop())
	require.Positive(t, c.most)
	require.LessOrEqual(t, c.most, maxConnections)
	c.most = 8
	for i := range 9 {
		conn := &dialled{address: "127.0.0.1:1"}
		c.begin(t.Context(), conn)
		require.Equal(t, i == 8, conn.closed, "connection %d", i+1)
	}
}

// TestAServerClosesConnectionsBeyondTheBound has one request on each of some connections, which then stay open.
func TestAServerClosesConnectionsBeyondTheBound(t *testing.T) {
	t.Parallel()
	s := newShelf()
	token, _ := s.add(1, access.Record{Name: "ci", Kind: access.APIToken, Role: access.Viewer})
	api := httpapi.New(httpapi.Options{Gate: s.gate(Options{})})
	server := httptest.NewUnstartedServer(api.Handler())
	hooks := make(chan http.ConnState, 100)
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return ctx }
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) { hooks <- state }
	c := NewConnections(true, zap.NewNop())
	c.mostStrangers = 2
	c.Bound(server.Config)
	server.Start()
	t.Cleanup(server.Close)
	ask := func(token string) error {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+token+"\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	for range 3 {
		require.NoError(t, ask(token), "who is known does not count")
	}
	require.NoError(t, ask("wrong"))
	require.NoError(t, ask("wrong"))
	require.Error(t, ask(token), "nobody knows yet whose it is")
	require.NotEmpty(t, hooks, "the hooks of others are called too")
}
