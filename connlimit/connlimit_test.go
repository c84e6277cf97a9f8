package connlimit

import (
	"net"
	"strings"
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
			"192.0.2.4:1", "192.0.2.5:1"}, []int{6, 9}},
		"who is known has a share": {[]string{known(here), known(here), known(here), known(here), known(here), known(here),
			known(here), known(there), "other@" + here}, []int{6, 7}},
		"all have a bound": {[]string{known(here), known(here), known(here), known(here), known(here), known(here),
			"other@" + here, "other@" + here, "third@" + there}, []int{8}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.WarnLevel)
			l := New(3, zap.New(core))
			l.most = 8
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
			require.Empty(t, l.of, "nothing is kept of who has gone")
		})
	}
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
