package agent

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// An instance that does not listen does not pass because another one answers at its port.
func TestOnlyTheInstancesOwnListenerCounts(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	number := listener.Addr().(*net.TCPAddr).Port
	check := &api.ServiceCheck{TCP: &api.TCPCheck{Port: api.ServicePort(strconv.Itoa(number))}}
	other := exec.Command("sleep", "1000")
	require.NoError(t, other.Start())
	t.Cleanup(func() { _, _ = other.Process.Kill(), other.Wait() })

	at := &attempt{run: &run{agent: &Agent{}}, task: &Task{}}
	require.NoError(t, at.check(t.Context(), check), "a handler's listener is its agent's")
	at.guard.Store(int32(os.Getpid())) //nolint:gosec // a process id
	require.NoError(t, at.check(t.Context(), check), "it is in the command's tree")
	at.guard.Store(int32(other.Process.Pid)) //nolint:gosec // a process id
	require.ErrorContains(t, at.check(t.Context(), check), "another process listens on port "+strconv.Itoa(number))
	at.task.Allocation = &api.Allocation{Ports: map[string]int{"http": number}}
	require.NoError(t, at.check(t.Context(), check), "the port is the instance's own")
}

func TestWhoGetsAConnection(t *testing.T) {
	t.Parallel()
	at := func(address string, own bool) listener { return listener{at: netip.MustParseAddr(address), own: own} }
	for name, c := range map[string]struct {
		listeners []listener
		to        string
		own       bool
	}{
		"nobody":                    {nil, "127.0.0.1", false},
		"it":                        {[]listener{at("127.0.0.1", true)}, "127.0.0.1", true},
		"it, at another address":    {[]listener{at("10.0.0.7", true)}, "127.0.0.1", false},
		"it, at all addresses":      {[]listener{at("0.0.0.0", true)}, "127.0.0.1", true},
		"it, at all of both kinds":  {[]listener{at("::", true)}, "127.0.0.1", true},
		"not by another kind":       {[]listener{at("0.0.0.0", true)}, "::1", false},
		"who has exactly this":      {[]listener{at("127.0.0.1", false), at("::", true)}, "127.0.0.1", false},
		"it, beside another at ::1": {[]listener{at("::1", false), at("127.0.0.1", true)}, "127.0.0.1", true},
		"it and another, in turns":  {[]listener{at("0.0.0.0", false), at("0.0.0.0", true)}, "127.0.0.1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.own, answers(c.listeners, netip.MustParseAddr(c.to)))
		})
	}
}

func TestListenersAreRead(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0 0 1234 1":                  "127.0.0.1 1234",
		"   0: 0100007F:1F90 0100007F:9000 01 00000000:00000000 00:00000000 00000000  0 0 1234 1":                  "", // a connection
		"   0: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0 0 1234 1":                  "",
		"   1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 77 1": "::1 77",
		"   1: 0000000000000000FFFF00000100007F:1F90 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 77 1": "127.0.0.1 77",
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode":         "",
	} {
		l, inode, ok := readListener([]byte(line), 8080)
		require.Equal(t, want != "", ok, line)
		if ok {
			require.Equal(t, want, l.at.String()+" "+inode)
		}
	}
}
