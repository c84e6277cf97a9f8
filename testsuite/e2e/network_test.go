package e2e

import (
	"context"
	"errors"
	"net"
	"sync"
)

// network is an agent's way to its hubs, which a test can cut and heal.
type network struct {
	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

func newNetwork() *network { return &network{conns: map[net.Conn]bool{}} }

// dial is agent.Options.DialContext.
func (n *network) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	n.mu.Lock()
	down := n.down
	n.mu.Unlock()
	if down {
		return nil, errors.New("the network is cut")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, kind, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		_ = c.Close()
		return nil, errors.New("the network is cut")
	}
	n.conns[c] = true
	return c, nil
}

// cut closes all connections and refuses new ones.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for c := range n.conns {
		_ = c.Close()
	}
	clear(n.conns)
}

// heal lets connections through again.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}
