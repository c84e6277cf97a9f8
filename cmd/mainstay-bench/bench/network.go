package bench

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// relay is a network between agents and a hub: it delays what passes, and can cut all connections.
type relay struct {
	listener net.Listener
	to       string
	delay    time.Duration // in one direction
	held     sync.RWMutex  // while it is locked, nothing passes, and no connection is closed

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// newRelay listens on this machine for connections to an address, until the installation stops.
func (i *Installation) newRelay(to string, delay time.Duration) (*relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: listener, to: to, delay: delay, conns: map[net.Conn]bool{}}
	i.atStop(func() { _ = listener.Close(); r.cut() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go r.join(near)
		}
	}()
	return r, nil
}

func (r *relay) url() string { return "http://" + r.listener.Addr().String() }

// join opens the other half of a connection, a round trip later, and carries the data of both.
func (r *relay) join(near net.Conn) {
	time.Sleep(2 * r.delay)
	far, err := net.Dial("tcp", r.to)
	if err != nil {
		_ = near.Close()
		return
	}
	r.mu.Lock()
	r.conns[near], r.conns[far] = true, true
	r.mu.Unlock()
	go r.carry(near, far)
	r.carry(far, near)
}

// carry sends on what comes, and the end, each after the delay.
func (r *relay) carry(from, to net.Conn) {
	type piece struct {
		data []byte
		at   time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			pieces <- piece{buffer[:n], time.Now().Add(r.delay)}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.at))
		r.held.RLock()
		r.held.RUnlock()        //nolint:staticcheck // it only waits
		_, _ = to.Write(p.data) // an end that is gone closes the other half too
	}
	r.mu.Lock()
	delete(r.conns, to)
	r.mu.Unlock()
	_ = to.Close()
}

// cut closes all connections and returns how many.
func (r *relay) cut() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
	n := len(r.conns) / 2
	clear(r.conns)
	return n
}

// cable joins an agent's own network namespace to this machine. It needs root and the program ip.
type cable struct{ space, link, address string }

// newCable makes a namespace and a link to it, by a number that no other has, until the installation stops.
func (i *Installation) newCable(n int) (*cable, error) {
	c := &cable{space: fmt.Sprintf("mainstay-bench-%d-%d", os.Getpid(), n),
		link:    fmt.Sprintf("msb%d-%d", os.Getpid()%1e5, n),
		address: fmt.Sprintf("10.78.%d.1", n)}
	i.atStop(func() { _ = ip("netns del " + c.space) }) // the link goes with it
	err := ip("netns add "+c.space, "link add "+c.link+" type veth peer name eth0 netns "+c.space,
		"addr add "+c.address+"/24 dev "+c.link, "link set "+c.link+" up",
		fmt.Sprintf("-n %s addr add 10.78.%d.2/24 dev eth0", c.space, n), "-n "+c.space+" link set lo up")
	if err != nil {
		return nil, err
	}
	return c, c.plug()
}

// pull takes the link down at the agent's end, without a word to anybody. plug puts it up again.
func (c *cable) pull() error { return ip("-n " + c.space + " link set eth0 down") }
func (c *cable) plug() error { return ip("-n " + c.space + " link set eth0 up") }

// cableToken lets agents in namespaces register; it protects nothing else.
const cableToken = "a-token-for-benchmarks-that-protects-nothing"

// under is the command line that runs an agent in the namespace.
func (c *cable) under() []string {
	return []string{"ip", "netns", "exec", c.space, "env", "MAINSTAY_JOIN_TOKEN=" + cableToken + "-join"}
}

func ip(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
