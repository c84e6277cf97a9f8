//go:build linux

package chaos

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// network joins agents to the hubs by real links: every agent has a network namespace of its own, and packets pass a
// router, in another one, that can drop them in either direction.
//
//	agent 0 ─veth─┐
//	agent 1 ─veth─┤ router ─veth─ hub side, where the agents' wires listen
//
// No namespace has a name: a namespace lives as long as the driver holds its file, so nothing is left behind.
type network struct {
	router, hubs *namespace

	mu    sync.Mutex
	sites int
}

const hubAddress = "10.77.255.1"

// newNetwork makes the router and the hub side. It fails where the machine does not allow namespaces, veth or ip.
func newNetwork(t testing.TB) (*network, error) {
	n := &network{}
	var err error
	if n.router, err = newNamespace(t); err != nil {
		return nil, err
	}
	if n.hubs, err = newNamespace(t); err != nil {
		return nil, err
	}
	if err := n.router.ip("link add hubs type veth peer name router netns " + n.hubs.path()); err != nil {
		return nil, err
	}
	if err := n.router.ip("addr add 10.77.255.2/24 dev hubs", "link set hubs up", "link set lo up"); err != nil {
		return nil, err
	}
	if err := n.router.do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"),
			0)
	}); err != nil {
		return nil, err
	}
	return n, n.hubs.ip("addr add "+hubAddress+"/24 dev router", "link set router up", "link set lo up",
		"route add 10.77.0.0/16 via 10.77.255.2")
}

// listen opens a port on the hub side.
func (n *network) listen() (listener net.Listener, err error) {
	err = n.hubs.do(func() error {
		listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", hubAddress+":0")
		return err
	})
	return listener, err
}

// site is the network namespace of one agent.
type site struct {
	network *network
	space   *namespace
	link    string // its link at the router
	address string
}

func (n *network) newSite(t testing.TB) (*site, error) {
	n.mu.Lock()
	number := n.sites
	n.sites++
	n.mu.Unlock()
	space, err := newNamespace(t)
	if err != nil {
		return nil, err
	}
	s := &site{network: n, space: space, link: fmt.Sprintf("agent%d", number),
		address: fmt.Sprintf("10.77.%d.2", number)}
	gate := fmt.Sprintf("10.77.%d.1", number)
	if err := n.router.ip("link add "+s.link+" type veth peer name eth0 netns "+space.path(),
		"addr add "+gate+"/24 dev "+s.link, "link set "+s.link+" up"); err != nil {
		return nil, err
	}
	return s, space.ip("addr add "+s.address+"/24 dev eth0", "link set eth0 up", "link set lo up",
		"route add default via "+gate)
}

// partition drops what the agent sends, what is sent to it, or both, without a word to either side.
func (s *site) partition(fromAgent, toAgent bool) error {
	var lines []string
	if fromAgent {
		lines = append(lines, "rule add iif "+s.link+" blackhole")
	}
	if toAgent {
		lines = append(lines, "route add blackhole "+s.address+"/32")
	}
	return s.network.router.ip(lines...)
}

// mend ends what partition began.
func (s *site) mend(fromAgent, toAgent bool) error {
	var lines []string
	if fromAgent {
		lines = append(lines, "rule del iif "+s.link+" blackhole")
	}
	if toAgent {
		lines = append(lines, "route del blackhole "+s.address+"/32")
	}
	return s.network.router.ip(lines...)
}

// namespace is a network namespace without a name.
type namespace struct {
	file *os.File
}

func newNamespace(t testing.TB) (*namespace, error) {
	made := make(chan error)
	space := &namespace{}
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			space.file, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	t.Cleanup(func() { _ = space.file.Close() })
	return space, nil
}

// path names the namespace for other processes while the driver lives.
func (s *namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.file.Fd()) }

// do runs f on a thread that is in the namespace; what f starts or opens is in it too.
func (s *namespace) do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := s.enter(); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// enter moves the calling thread, which must be locked, into the namespace.
func (s *namespace) enter() error { return unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET) }

// ip runs ip commands in the namespace.
func (s *namespace) ip(lines ...string) error {
	return s.do(func() error {
		for _, line := range lines {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
			}
		}
		return nil
	})
}

// TestNetwork looks whether a partition drops what it says, and nothing else.
func TestNetwork(t *testing.T) {
	t.Parallel()
	n, err := newNetwork(t)
	if err != nil {
		t.Skipf("network namespaces are not to be had here: %v", err)
	}
	hubs, err := n.packets(n.hubs, hubAddress)
	require.NoError(t, err)
	t.Cleanup(func() { _ = hubs.Close() })
	var sites []*site
	var agents []net.PacketConn
	for range 2 {
		s, err := n.newSite(t)
		require.NoError(t, err)
		conn, err := n.packets(s.space, s.address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		sites, agents = append(sites, s), append(agents, conn)
	}
	for _, c := range []struct {
		name               string
		fromAgent, toAgent bool
	}{{"whole", true, true}, {"agent is not heard", true, false}, {"agent hears nothing", false, true}} {
		require.NoError(t, sites[0].partition(c.fromAgent, c.toAgent), c.name)
		require.Equal(t, !c.fromAgent, arrives(agents[0], hubs), "%s: from the agent", c.name)
		require.Equal(t, !c.toAgent, arrives(hubs, agents[0]), "%s: to the agent", c.name)
		require.True(t, arrives(agents[1], hubs) && arrives(hubs, agents[1]), "%s: another agent is not touched",
			c.name)
		require.NoError(t, sites[0].mend(c.fromAgent, c.toAgent), c.name)
		require.True(t, arrives(agents[0], hubs) && arrives(hubs, agents[0]), "%s: mended", c.name)
	}
}

// packets opens a UDP socket in a namespace.
func (n *network) packets(space *namespace, address string) (conn net.PacketConn, err error) {
	err = space.do(func() error {
		conn, err = new(net.ListenConfig).ListenPacket(context.Background(), "udp", address+":0")
		return err
	})
	return conn, err
}

// arrives sends packets from one socket to the other until one arrives, or none has for long enough.
func arrives(from, to net.PacketConn) bool {
	letter := []byte(rand.Text())
	buffer := make([]byte, 64)
	for range 10 {
		_, _ = from.WriteTo(letter, to.LocalAddr())
		_ = to.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
		for {
			n, _, err := to.ReadFrom(buffer)
			if err != nil {
				break
			}
			if bytes.Equal(buffer[:n], letter) { // not one of an earlier call
				return true
			}
		}
	}
	return false
}
