// Package connlimit bounds the connections of a server, and above all those on which nobody has proven who they are.
package connlimit

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// maxConnections bounds the connections of a server; a low limit of open files bounds them further.
	maxConnections = 65_536
	// fullLogged spaces the lines of the log about connections that were refused.
	fullLogged = time.Minute
	// refusals is how many refusals a connection gets, and refusedFor how long after the first it is open.
	refusals   = 16
	refusedFor = time.Second
)

// Limit bounds the connections of a server. Those beyond are closed: so those that agents have stay, and the process
// has files for its own work.
type Limit struct {
	most      int
	strangers int // of one address; 0: no bound
	logger    *zap.Logger

	mu     sync.Mutex
	open   map[net.Conn]*connection
	of     map[string]*list.List // strangers' connections by address, the oldest first
	known  map[string]int        // connections of those who have proven who they are
	logged time.Time
}

// connection is one that counts.
type connection struct {
	limit   *Limit
	conn    net.Conn
	address string
	among   *list.Element // of the strangers' connections of its address; nil: it no longer counts there
	who     string        // that it counts for; empty: nobody
	refused int
}

type connectionKey struct{}

// New makes the limit of one server. strangers is how many connections one address may have on which nobody has proven
// yet who they are; 0: it has no bound of its own, as where only this machine can reach the server.
func New(strangers int, logger *zap.Logger) *Limit {
	return &Limit{most: mostConnections(), strangers: strangers, logger: logger, open: map[net.Conn]*connection{},
		of: map[string]*list.List{}, known: map[string]int{}}
}

// Apply counts a server's connections. The server's own hooks must be set before.
func (l *Limit) Apply(s *http.Server) {
	begun, changed := s.ConnContext, s.ConnState
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if begun != nil {
			ctx = begun(ctx, conn)
		}
		return l.begin(ctx, conn)
	}
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		if changed != nil {
			changed(conn, state)
		}
		if state == http.StateClosed || state == http.StateHijacked {
			l.end(conn)
		}
	}
}

// begin counts a connection, or closes it where there is no room for any. An address may have as many as are then still
// free, so that there is always one for the next address. Beyond that its oldest connection makes room: who can prove
// who they are does so at once, and is not kept out by those who only hold connections.
func (l *Limit) begin(ctx context.Context, conn net.Conn) context.Context {
	c := &connection{limit: l, conn: conn, address: AddressKey(conn.RemoteAddr().String())}
	l.mu.Lock()
	defer l.mu.Unlock()
	free, own := l.most-len(l.open), l.of[c.address]
	if own == nil {
		own = list.New()
	}
	switch {
	case free <= 0:
		l.logLocked(c.address, own.Len())
		_ = conn.Close()
		return ctx
	case l.strangers > 0 && own.Len() >= min(l.strangers, free):
		l.logLocked(c.address, own.Len())
		oldest := own.Front().Value.(*connection)
		_ = oldest.conn.Close()
		delete(l.open, oldest.conn)
		oldest.leaveAddressLocked()
	}
	l.of[c.address] = own // it may just have lost its last
	l.open[conn] = c
	c.among = own.PushBack(c)
	return context.WithValue(ctx, connectionKey{}, c)
}

// logLocked says that connections are closed, once in a while.
func (l *Limit) logLocked(of string, theirs int) {
	if now := time.Now(); now.Sub(l.logged) >= fullLogged {
		l.logged = now
		l.logger.Warn("Connections are closed: there are too many, of this client or of all",
			zap.String("client", of), zap.Int("of_client", theirs), zap.Int("open", len(l.open)),
			zap.Int("most", l.most))
	}
}

func (l *Limit) end(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.open[conn]
	if c == nil {
		return
	}
	delete(l.open, conn)
	c.leaveAddressLocked()
	if c.who == "" {
		return
	}
	if l.known[c.who]--; l.known[c.who] == 0 {
		delete(l.known, c.who)
	}
}

// knownShare is how many times the connections that are still free one of those who have proven who they are may have:
// three quarters of all, if nobody else has any. So there is always one for the next.
const knownShare = 3

// Proven says that the caller of a request has proven who they are: its connection no longer counts for its address. It
// counts for who, if that is not empty, and is closed if they have too many.
func Proven(ctx context.Context, who string) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return
	}
	l := c.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	first := c.among != nil
	c.leaveAddressLocked()
	if !first || who == "" || l.strangers == 0 {
		return
	}
	if l.known[who] >= knownShare*(l.most-len(l.open)+1) {
		l.logLocked(who, l.known[who])
		_ = c.conn.Close()
		delete(l.open, c.conn)
		return
	}
	c.who = who
	l.known[who]++
}

// leaveAddressLocked ends that the connection counts for its address.
func (c *connection) leaveAddressLocked() {
	if c.among == nil {
		return
	}
	own := c.limit.of[c.address]
	own.Remove(c.among)
	c.among = nil
	if own.Len() == 0 {
		delete(c.limit.of, c.address)
	}
}

// Refused says that a request on a connection of many requests at a time was refused, and that the connection is to be
// closed soon. It reports whether the caller gets an answer: after too many refusals the connection is closed at once.
func Refused(ctx context.Context) bool {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return false
	}
	c.limit.mu.Lock()
	c.refused++
	refused := c.refused
	c.limit.mu.Unlock()
	switch {
	case refused > refusals:
		_ = c.conn.Close()
		return false
	case refused == 1:
		time.AfterFunc(refusedFor, func() { _ = c.conn.Close() })
	}
	return true
}

// AddressKey is who a request without a token is counted as: its address, of which an IPv6 host has many.
func AddressKey(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return "address " + host
	}
	address = address.Unmap().WithZone("")
	if address.Is6() {
		if prefix, err := address.Prefix(64); err == nil {
			return "address " + prefix.String()
		}
	}
	return "address " + address.String()
}
