// Package unread bounds the answers that clients do not read. Over HTTP/2 one connection carries many requests; a
// client that takes none of the answers keeps all of them in memory, with the headers of what it asked.
package unread

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// perAddress and total bound the answers that are being finished: of one address, and of all. Those of callers who
	// have proven who they are have a total of their own, so that nobody who shares their address keeps them out.
	perAddress = 256
	total      = 4096
	// patience is how long a client may take to read the end of an answer.
	patience = 10 * time.Second
)

// Answers are those over HTTP/2 that wait for their clients to read the end.
type Answers struct {
	perAddress, total int
	patience          time.Duration

	mu    sync.Mutex
	of    map[string]int // of strangers, by address
	n     int            // of strangers
	known int
}

// caller is in a request's context: whether the caller has proven who they are.
type caller struct{ known bool }

type callerKey struct{}

// Known says that the caller of a request has proven who they are.
func Known(ctx context.Context) {
	if c, ok := ctx.Value(callerKey{}).(*caller); ok {
		c.known = true
	}
}

// New makes the bounds of one server.
func New() *Answers {
	return &Answers{perAddress: perAddress, total: total, patience: patience, of: map[string]int{}}
}

// Bound serves what next does, within the bounds.
func (a *Answers) Bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 { // one request of a connection at a time, and its end fits into the kernel's buffer
			next.ServeHTTP(w, r)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, &caller{}))
		next.ServeHTTP(w, r)
		a.Finish(w, r)
	})
}

// Finish sends what a handler has written, and waits until the client has taken it. Where too many answers wait, or
// this one for too long, it ends the request without the answer.
func (a *Answers) Finish(w http.ResponseWriter, r *http.Request) {
	c, _ := r.Context().Value(callerKey{}).(*caller)
	known := c != nil && c.known
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	if !a.begin(address, known) {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to end a request without its answer
	}
	defer a.end(address, known)
	answer := http.NewResponseController(w)
	_ = answer.SetWriteDeadline(time.Now().Add(a.patience))
	_ = answer.Flush()
}

func (a *Answers) begin(address string, known bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case known && a.known < a.total:
		a.known++
	case !known && a.n < a.total && a.of[address] < a.perAddress:
		a.n++
		a.of[address]++
	default:
		return false
	}
	return true
}

func (a *Answers) end(address string, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known {
		a.known--
		return
	}
	a.n--
	if a.of[address]--; a.of[address] == 0 {
		delete(a.of, address)
	}
}
