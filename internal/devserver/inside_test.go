package devserver

import (
	"io"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
)

// TestPortsOfTemporalsOwnPartsHoldFewStrangers: whoever does not have the certificate of Temporal's services keeps few
// connections to them, and none for long, and those who have it get in meanwhile. gRPC alone would hold any number for
// two minutes.
func TestPortsOfTemporalsOwnPartsHoldFewStrangers(t *testing.T) {
	t.Parallel()
	var s *Server
	var ports servicePorts
	for n := range 3 { // another process may take a port first
		o := Options{Key: "a key"}.withDefaults()
		var err error
		ports, err = choosePorts(&o)
		require.NoError(t, err)
		s = &Server{address: net.JoinHostPort(o.Host, strconv.Itoa(o.Port)), namespace: o.Namespace, key: o.Key,
			frontend: net.JoinHostPort(internalHost, strconv.Itoa(ports.frontend))}
		s.internal, err = newInternalTLS()
		require.NoError(t, err)
		t.Cleanup(s.Stop)
		if err = s.start(t.Context(), o, ports); err == nil {
			break
		}
		require.Less(t, n, 2, err)
	}

	var held []net.Conn
	for _, port := range []int{ports.history, ports.matching, ports.worker, ports.internal, ports.frontend} {
		for n := range maxStrangers + 1 {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort(internalHost, strconv.Itoa(port)))
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			if n == 0 {
				held = append(held, conn)
			}
		}
	}
	own := s.ClientOptions()
	own.Logger = silent{}
	c, err := client.DialContext(t.Context(), own)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "kept", TaskQueue: "nobody"}, "Kept")
	require.NoError(t, err)
	for _, conn := range held {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err := io.ReadAll(conn)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection to %s stays open", conn.RemoteAddr())
	}
}
