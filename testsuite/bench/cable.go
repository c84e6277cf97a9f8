package bench

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// cable joins an agent's own network namespace to this machine. It needs root and the program ip.
type cable struct{ space, link, address string }

// newCable makes a namespace and a link to it, by a number that no other has.
func newCable(n int) (*cable, error) {
	c := &cable{space: fmt.Sprintf("mainstay-bench-%d-%d", os.Getpid(), n),
		link:    fmt.Sprintf("msb%d-%d", os.Getpid()%1e5, n),
		address: fmt.Sprintf("10.78.%d.1", n)}
	err := ip("netns add "+c.space, "link add "+c.link+" type veth peer name eth0 netns "+c.space,
		"addr add "+c.address+"/24 dev "+c.link, "link set "+c.link+" up",
		fmt.Sprintf("-n %s addr add 10.78.%d.2/24 dev eth0", c.space, n), "-n "+c.space+" link set lo up")
	if err == nil {
		err = c.plug()
	}
	if err != nil {
		c.remove()
		return nil, err
	}
	return c, nil
}

// pull takes the link down at the agent's end; nobody is told. plug puts it up again.
func (c *cable) pull() error { return ip("-n " + c.space + " link set eth0 down") }
func (c *cable) plug() error { return ip("-n " + c.space + " link set eth0 up") }

// remove removes the namespace with its link.
func (c *cable) remove() { _ = ip("netns del " + c.space) }

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
