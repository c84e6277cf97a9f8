package connlimit

import (
	"net"
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
			c := New(3, zap.New(core))
			c.most = 8
			refused := 0
			var open []net.Conn
			for i, s := range steps {
				conn := &dialled{address: s.address}
				ctx := c.begin(t.Context(), conn)
				require.Equal(t, s.refused, conn.closed, "connection %d", i+1)
				if s.proven {
					Proven(ctx)
					Proven(ctx)
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
			require.Empty(t, c.of, "nothing is kept of who has gone")
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
