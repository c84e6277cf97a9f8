package connlimit

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
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
	var many []string // addresses of one network
	for n := range 8 {
		many = append(many, fmt.Sprintf("[2001:db8:1:%d::1]:1", n))
	}
	known := func(address string) string { return "ci@" + address } // its first request says who it is
	for name, tt := range map[string]struct {
		connections []string
		closed      []int // which of them, in the end
	}{
		"an address has its share, and the oldest makes room": {[]string{here, here, here, here, here, there}, []int{0, 1}},
		"an IPv6 host has one share":                          {[]string{next, neighbour, next, neighbour}, []int{0}},
		"agents behind one address have none": {[]string{known(here), known(here), known(here), known(here), known(here),
			here}, nil},
		"who is known stays": {[]string{known(here), here, here, here, here}, []int{1}},
		"there is always one for the next address": {[]string{here, here, here, there, there, there, next, next,
			"192.0.2.4:1", "192.0.2.5:1"}, []int{0, 1, 3, 4}},
		"many addresses keep nobody out": {append(slices.Clone(many), known(here), known(here), known(here), known(there)),
			[]int{0, 1, 2, 3}},
		"many addresses of a network make room for each other": {append([]string{here, there}, many...),
			[]int{2, 3, 4, 5}},
		"of many addresses the one that has most makes room": {append(slices.Clone(many[:5]), many[4], many[4], many[6]),
			[]int{4, 5}},
		"who is known has a share": {[]string{known(here), known(here), known(here), known(here), known(here), known(here),
			known(here), known(there), "other@" + here}, []int{6, 7}},
		"all have a bound": {[]string{known(here), known(here), known(here), known(here), known(here), known(here),
			"other@" + here, "other@" + here, "third@" + there}, []int{8}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.WarnLevel)
			l := New(3, zap.New(core))
			l.most, l.allStrangers = 8, 6
			var open []*dialled
			for _, address := range tt.connections {
				who, address, isKnown := strings.Cut(address, "@")
				if !isKnown {
					address = who
				}
				conn := &dialled{address: address}
				ctx := l.begin(t.Context(), conn)
				if isKnown {
					Proven(ctx, who)
					Proven(ctx, who)
				}
				open = append(open, conn)
			}
			var closed []int
			for i, conn := range open {
				if conn.closed {
					closed = append(closed, i)
				}
			}
			require.Equal(t, tt.closed, closed)
			require.Equal(t, min(len(closed), 1), logs.Len(), "a flood does not become one in the log")
			for _, conn := range open {
				l.end(conn)
				l.end(conn)
			}
			require.Empty(t, l.open)
			require.Empty(t, l.known)
			require.Zero(t, l.unproven.size)
			require.Empty(t, l.unproven.parts, "nothing is kept of who has gone")
			require.Empty(t, l.unproven.largest)
		})
	}
}

func TestAPublicServerHasFewConnections(t *testing.T) {
	t.Parallel()
	l := NewPublic(4, zap.NewNop())
	for n := range 100 {
		l.begin(t.Context(), &dialled{address: fmt.Sprintf("10.0.%d.1:1", n)})
		require.LessOrEqual(t, len(l.open), 4)
	}
}

// unread is the server's side of a connection whose client has stopped reading.
type unread struct {
	net.Conn
	stopped atomic.Bool
	writes  atomic.Int32
}

func (u *unread) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)} }

func (u *unread) Write(p []byte) (int, error) {
	if u.stopped.Load() {
		u.writes.Add(1)
		return 0, net.ErrClosed
	}
	return u.Conn.Write(p)
}

// TestWhoDoesNotReadHoldsNobodyUp: TLS says that it ends, which waits for seconds where the client does not read.
func TestWhoDoesNotReadHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil)
	t.Cleanup(certified.Close)
	here, there := net.Pipe()
	own := &unread{Conn: here}
	server := tls.Server(own, certified.TLS)
	client := tls.Client(there, &tls.Config{InsecureSkipVerify: true})
	t.Cleanup(func() { _ = client.Close() })
	shaken := make(chan error, 1)
	go func() { shaken <- client.HandshakeContext(t.Context()) }()
	require.NoError(t, server.HandshakeContext(t.Context()))
	require.NoError(t, <-shaken)
	own.stopped.Store(true)
	l := New(1, zap.NewNop())
	l.begin(t.Context(), server)
	l.begin(t.Context(), &dialled{address: "192.0.2.1:2"})
	require.Zero(t, own.writes.Load())
	_, err := here.Write(nil)
	require.Error(t, err, "it is closed")
}

func TestWithoutSecurityAnAddressHasNoBoundOfItsOwn(t *testing.T) {
	t.Parallel()
	c := New(0, zap.NewNop())
	require.Positive(t, c.most)
	require.LessOrEqual(t, c.most, maxConnections)
	c.most = 8
	for i := range 9 {
		conn := &dialled{address: "127.0.0.1:1"}
		c.begin(t.Context(), conn)
		require.Equal(t, i == 8, conn.closed, "connection %d", i+1)
	}
}

func TestAddressKey(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"10.1.2.3:999":               "address 10.1.2.3",
		"[::ffff:10.1.2.3]:999":      "address 10.1.2.3",
		"[2001:db8:1:2:3:4:5:6]:999": "address 2001:db8:1:2::/64",
		"[fe80::1%eth0]:9":           "address fe80::/64",
		"@":                          "address @",
	} {
		require.Equal(t, want, AddressKey(remote))
	}
}
