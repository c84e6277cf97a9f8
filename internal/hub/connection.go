package hub

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mainstay.dev/mainstay/internal/httpapi"
	"mainstay.dev/sdk/protocol"
)

// connection is one TCP connection to the hub. When it closes, the session that last polled on it becomes suspect, and
// is lost unless it polls on another within the grace.
type connection struct {
	host    string   // the other end's address
	session *session // guarded by the hub's mutex
	watched *watchedConn
	probe   sync.Once
}

// link is how the agent is in touch with the hub.
type link struct {
	conn        *connection
	closedAt    time.Time     // zero while its connection is open
	unreachable bool          // the kernel closed it: its host does not answer
	sequence    int64         // of the newest poll
	lastContact time.Time     // the newest poll's arrival
	repliedAt   time.Time     // of the answer to the poll that the newest orders went with
	roundTrip   time.Duration // from an answer to the next poll, smoothed; 0: not measured yet
}

// closed reports whether the agent's connection is closed.
func (l *link) closed() bool { return !l.closedAt.IsZero() }

// measure takes the time from an answer until the agent's next poll into its round trip. answered is the poll that was
// answered last. A poll that the agent sent before it had read the answer says nothing.
func (l *link) measure(poll *protocol.Poll, answered int64, now time.Time) {
	if l.repliedAt.IsZero() || poll.Sequence != answered+1 || poll.Answered != nil && *poll.Answered < answered {
		return
	}
	taken := now.Sub(l.repliedAt)
	if l.roundTrip == 0 {
		l.roundTrip = taken
		return
	}
	const smoothing = 4
	l.roundTrip += (taken - l.roundTrip) / smoothing
}

// Watch makes a listener whose connections report to the hub why they end. It belongs below TLS.
func Watch(l net.Listener) net.Listener { return watchedListener{l} }

type watchedListener struct{ net.Listener }

func (l watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: c}, nil
}

// watchedConn records whether the kernel has found that the other end's host cannot be reached.
type watchedConn struct {
	net.Conn
	unreachable atomic.Bool
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.note(err)
}

func (c *watchedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.note(err)
}

func (c *watchedConn) note(err error) error {
	if errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.ENETUNREACH) {
		c.unreachable.Store(true)
	}
	return err
}

// noticeUnreachable has the kernel probe the other end from now on: it is an agent's, whose polls keep it open.
func (c *connection) noticeUnreachable() {
	if c == nil || c.watched == nil {
		return
	}
	c.probe.Do(func() {
		tcp, ok := c.watched.Conn.(*net.TCPConn)
		if !ok || tcp.SetKeepAliveConfig(protocol.KeepAlive) != nil {
			return
		}
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = protocol.NoticeUnreachable("", "", raw) // without it, silence shows it
		}
	})
}

type connectionKey struct{}

// ConnContext belongs in http.Server.ConnContext: it lets a poll find the connection it came on.
func (h *Hub) ConnContext(ctx context.Context, c net.Conn) context.Context {
	conn := &connection{host: c.RemoteAddr().String()}
	below := c
	for {
		above, wraps := below.(interface{ NetConn() net.Conn }) // TLS, and what bounds its handshakes
		if !wraps {
			break
		}
		below = above.NetConn()
	}
	conn.watched, _ = below.(*watchedConn)
	if host, _, err := net.SplitHostPort(conn.host); err == nil {
		conn.host = host
	}
	h.mu.Lock()
	h.conns[c] = conn
	h.mu.Unlock()
	return context.WithValue(ctx, connectionKey{}, conn)
}

// hostOf is the address that an agent registers from; empty if unknown.
func hostOf(ctx context.Context) string {
	if client, _ := httpapi.ClientFrom(ctx); client.Proxy != "" {
		return client.Address
	}
	if conn, _ := ctx.Value(connectionKey{}).(*connection); conn != nil {
		return conn.host
	}
	return ""
}

// ConnState belongs in http.Server.ConnState: a closed connection without a goodbye makes its session suspect at once.
func (h *Hub) ConnState(c net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	conn := h.conns[c]
	delete(h.conns, c)
	if conn == nil || conn.session == nil {
		return
	}
	if s := conn.session; s.link.conn == conn {
		h.disconnectedLocked(s, time.Now())
		s.link.unreachable = conn.watched != nil && conn.watched.unreachable.Load()
	}
}

// attach makes this the connection that the session polls on.
func (s *session) attach(conn *connection) {
	s.link.closedAt = time.Time{}
	if conn == nil || s.link.conn == conn {
		return
	}
	if s.link.conn != nil {
		s.link.conn.session = nil
	}
	s.link.conn = conn
	conn.session = s
}
