package hub

import (
	"context"
	"net"
	"net/http"
	"time"

	"mainstay.dev/mainstay/httpapi"
)

// connection is one TCP connection to the hub. When it closes, the session that last polled on it becomes suspect, and
// is lost unless it polls on another within the grace.
type connection struct {
	host    string   // the other end's address
	session *session // guarded by the hub's mutex
}

type connectionKey struct{}

// ConnContext belongs in http.Server.ConnContext: it lets a poll find the connection it came on.
func (h *Hub) ConnContext(ctx context.Context, c net.Conn) context.Context {
	conn := &connection{host: c.RemoteAddr().String()}
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
	if s := conn.session; s.conn == conn {
		h.disconnectedLocked(s, time.Now())
	}
}

// disconnectedLocked marks a session suspect.
func (h *Hub) disconnectedLocked(s *session, now time.Time) {
	s.conn = nil
	if s.gone || h.stopping {
		return
	}
	s.disconnectedAt = now
	s.repeat()
	h.slotsChangedLocked(s)
}

// attach makes this the connection that the session polls on.
func (s *session) attach(conn *connection) {
	s.disconnectedAt = time.Time{}
	if conn == nil || s.conn == conn {
		return
	}
	if s.conn != nil {
		s.conn.session = nil
	}
	s.conn = conn
	conn.session = s
}
