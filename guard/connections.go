package guard

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// maxConnections bounds the connections of a server; a low limit of open files bounds them further.
	maxConnections = 65_536
	// maxStrangers bounds the connections of one address on which nobody has proven yet who they are. An agent proves
	// it with its first request, so that thousands may have one address.
	maxStrangers = 4096
	// fullLogged spaces the lines of the log about connections that were refused.
	fullLogged = time.Minute
)

// Connections bounds the connections of a server. Those beyond are closed at once: so those that agents have stay, and
// the process has files for its own work.
type Connections struct {
	most          int
	mostStrangers int // 0: no bound
	logger        *zap.Logger

	mu        sync.Mutex
	open      map[net.Conn]*openConnection
	strangers map[string]int // connections by address
	logged    time.Time
}

// openConnection is one that counts.
type openConnection struct {
	of      *Connections
	address string
	proven  bool
}

type connectionKey struct{}

// NewConnections makes the bounds of one server. While security is off, only this machine can reach it, and an address
// has no bound of its own.
func NewConnections(secure bool, logger *zap.Logger) *Connections {
	c := &Connections{most: mostConnections(), mostStrangers: maxStrangers, logger: logger,
		open: map[net.Conn]*openConnection{}, strangers: map[string]int{}}
	if !secure {
		c.mostStrangers = 0
	}
	return c
}

// Bound counts a server's connections. The server's own hooks must be set before.
func (c *Connections) Bound(s *http.Server) {
	begun, changed := s.ConnContext, s.ConnState
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if begun != nil {
			ctx = begun(ctx, conn)
		}
		return c.begin(ctx, conn)
	}
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		if changed != nil {
			changed(conn, state)
		}
		if state == http.StateClosed || state == http.StateHijacked {
			c.end(conn)
		}
	}
}

// begin counts a connection, or closes it. An address may have as many as are then still free, so that there is always
// one for the next address.
func (c *Connections) begin(ctx context.Context, conn net.Conn) context.Context {
	o := &openConnection{of: c, address: addressKey(conn.RemoteAddr().String())}
	c.mu.Lock()
	defer c.mu.Unlock()
	free, own := c.most-len(c.open), c.strangers[o.address]
	if free <= 0 || c.mostStrangers > 0 && own >= min(c.mostStrangers, free) {
		_ = conn.Close()
		if now := time.Now(); now.Sub(c.logged) >= fullLogged {
			c.logged = now
			c.logger.Warn("Connections are refused: there are too many, of this address or of all",
				zap.String("client", o.address), zap.Int("of_address", own), zap.Int("open", len(c.open)),
				zap.Int("most", c.most))
		}
		return ctx
	}
	c.open[conn] = o
	c.strangers[o.address]++
	return context.WithValue(ctx, connectionKey{}, o)
}

func (c *Connections) end(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.open[conn]; o != nil {
		delete(c.open, conn)
		o.proveLocked()
	}
}

// proven says that the caller of a request has proven who they are: its connection no longer counts for its address.
func proven(ctx context.Context) {
	if o, ok := ctx.Value(connectionKey{}).(*openConnection); ok {
		o.of.mu.Lock()
		defer o.of.mu.Unlock()
		o.proveLocked()
	}
}

func (o *openConnection) proveLocked() {
	if o.proven {
		return
	}
	o.proven = true
	if o.of.strangers[o.address]--; o.of.strangers[o.address] == 0 {
		delete(o.of.strangers, o.address)
	}
}
