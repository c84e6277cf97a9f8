// Package connlimit bounds the connections of a server, and above all those on which nobody has proven who they are.
package connlimit

import (
	"container/list"
	"context"
	"crypto/tls"
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
	// strangersShare: all strangers together may have one third of a server's connections. Then strangers on several
	// ports still leave the process some files.
	strangersShare = 3
	// fullLogged spaces the lines of the log about connections that were refused.
	fullLogged = time.Minute
	// refusals is how many refusals a connection gets, and refusedFor how long after the first it is open.
	refusals   = 16
	refusedFor = time.Second
)

// Limit bounds the connections of a server and closes further ones, so that agents keep theirs and the process has
// files for its own work.
type Limit struct {
	most         int
	strangers    int // of one address; 0: no bound
	allStrangers int
	logger       *zap.Logger

	mu       sync.Mutex
	open     map[net.Conn]*connection
	unproven *crowd         // strangers' connections
	known    map[string]int // connections of those who have proven who they are
	begun    int            // connections so far
	logged   time.Time
}

// connection is one that counts.
type connection struct {
	limit   *Limit
	conn    net.Conn
	number  int
	among   *crowd // strangers' connections of its address; nil: it no longer counts there
	place   *list.Element
	who     string // that it counts for; empty: nobody
	refused int
}

type connectionKey struct{}

// New makes the limit of one server. strangers is how many connections one address may have on which nobody has proven
// yet who they are; 0: it has no bound of its own, as where only this machine can reach the server.
func New(strangers int, logger *zap.Logger) *Limit {
	most := mostConnections()
	return &Limit{most: most, strangers: strangers, allStrangers: most / strangersShare, logger: logger,
		open: map[net.Conn]*connection{}, unproven: newCrowd(nil, ""), known: map[string]int{}}
}

// NewPublic makes the limit of a server on which nobody proves who they are: it has few connections in all.
func NewPublic(most int, logger *zap.Logger) *Limit {
	l := New(most, logger)
	l.allStrangers = min(most, l.allStrangers)
	return l
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

// begin counts a connection. Where there are too many, one makes room for it: of its address the oldest stranger, of
// all the oldest of the address that has most, in the network that has most. Who can prove who they are does so at
// once, and is not kept out by those who only hold connections, from however many addresses.
func (l *Limit) begin(ctx context.Context, conn net.Conn) context.Context {
	remote := conn.RemoteAddr().String()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun++
	c := &connection{limit: l, conn: conn, number: l.begun}
	l.open[conn] = c
	own := l.unproven.part(networkKey(remote)).part(AddressKey(remote))
	own.add(c)
	full, over := len(l.open) > l.most, c
	switch {
	case l.strangers > 0 && own.size > l.strangers:
		over = own.next()
	case l.strangers > 0 && (full || l.unproven.size > l.allStrangers):
		over = l.unproven.next() // the new one, if all others are known
	case !full:
		return context.WithValue(ctx, connectionKey{}, c)
	}
	l.logLocked(over.among.name, over.among.size)
	over.closeLocked()
	return context.WithValue(ctx, connectionKey{}, c)
}

// closeLocked ends a connection that counts for nobody.
func (c *connection) closeLocked() {
	shut(c.conn)
	delete(c.limit.open, c.conn)
	c.leaveAddressLocked()
}

// shut closes a connection at once. TLS would first say so, and wait for a client that does not read.
func shut(conn net.Conn) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	_ = conn.Close()
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

// knownShare bounds the connections of one proven client to three times the free ones. A client alone gets three
// quarters of all, and there is always a connection for the next.
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
	if l.known[who] >= knownShare*(l.most-(len(l.open)-l.unproven.size)+1) { // strangers make room
		l.logLocked(who, l.known[who])
		c.closeLocked()
		return
	}
	c.who = who
	l.known[who]++
}

// leaveAddressLocked ends that the connection counts for its address.
func (c *connection) leaveAddressLocked() {
	if c.among != nil {
		c.among.remove(c)
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
		shut(c.conn)
		return false
	case refused == 1:
		time.AfterFunc(refusedFor, func() { shut(c.conn) })
	}
	return true
}

// AddressKey is who a request without a token counts as: its address, or for IPv6 its network.
func AddressKey(remote string) string { return "address " + networkOf(remote, 32, 64) }

// networkKey is the network of an address. Whoever has many addresses mostly has them there.
func networkKey(remote string) string { return networkOf(remote, 24, 48) }

// networkOf is what the first bits of an IPv4 or an IPv6 address name.
func networkOf(remote string, v4, v6 int) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	address = address.Unmap().WithZone("")
	bits := v4
	if address.Is6() {
		bits = v6
	}
	if prefix, err := address.Prefix(bits); err == nil && !prefix.IsSingleIP() {
		return prefix.String()
	}
	return address.String()
}
