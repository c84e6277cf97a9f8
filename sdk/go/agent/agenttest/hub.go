// Package agenttest has a fake hub for tests of agents. It speaks the agent protocol over real HTTP, follows the test's
// orders, records what the agent sends, and fails the test when the agent breaks the protocol.
package agenttest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/protocol"
)

// T is what a hub needs of a test; every testing.TB has it.
type T interface {
	Helper()
	Cleanup(end func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Hub is a fake hub with at most one agent. It is safe for use by several goroutines.
type Hub struct {
	t       T
	options Options
	address string

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change
	server   *http.Server  // nil while stopped
	serving  *sync.WaitGroup
	listener net.Listener
	conns    map[net.Conn]bool
	faults   map[Op][]Fault

	session   *session
	sessions  int
	fenced    map[string]bool // instances that may not come back
	attempts  map[attemptKey]*attempt
	forgotten map[attemptKey]*attempt // known before ForgetSession: their tokens are still good
	outbox    []protocol.Assignment
	commands  []protocol.Command
	registers []protocol.Register
	proven    int
	polls     []protocol.Poll
	results   []Reported
	goodbyes  int
	withhold  bool // of leases
	logs      logs
	states    []protocol.StateReport
}

// Options change a Hub. The zero value is good for most tests.
type Options struct {
	// HeartbeatInterval is how long a poll is held. Default 5 s.
	HeartbeatInterval time.Duration
	// Lease is the agent's lease. Default 14.25 s.
	Lease time.Duration
	// Patience is how long a test waits for something before it fails. Default 15 s, in memory an hour.
	Patience time.Duration
	// InMemory serves on pipes instead of TCP, for tests in a testing/synctest bubble. Give the agent Hub.Dial.
	InMemory bool
	// TLS serves https when it is not nil.
	TLS *tls.Config
}

// Reported is an accepted result.
type Reported struct {
	TaskID string
	protocol.Result
}

// session is one registration.
type session struct {
	token, agent, instance string
	epoch, sequence        int64
	gone                   bool
	fenced                 bool
	answerNow              bool // the next poll: the agent brought work, whose lease an answer renews
}

type attemptKey struct {
	task   string
	number int
}

// attempt is one assignment on its way or running.
type attempt struct {
	assignment  protocol.Assignment
	deliveredIn int64 // sequence of the poll whose answer carried it
	accepted    bool
}

// NewHub starts a fake hub that ends with the test.
func NewHub(t T, o Options) *Hub {
	t.Helper()
	o.HeartbeatInterval = cmp.Or(o.HeartbeatInterval, 5*time.Second)
	o.Lease = cmp.Or(o.Lease, 14250*time.Millisecond)
	if o.InMemory { // time is that of a synctest bubble and costs nothing
		o.Patience = cmp.Or(o.Patience, time.Hour)
	}
	o.Patience = cmp.Or(o.Patience, 15*time.Second)
	h := &Hub{
		t: t, options: o, address: "127.0.0.1:0", changed: make(chan struct{}), conns: map[net.Conn]bool{},
		faults: map[Op][]Fault{}, fenced: map[string]bool{}, attempts: map[attemptKey]*attempt{},
	}
	h.Start()
	t.Cleanup(h.Stop)
	return h
}

// URL is the hub's base URL. It stays the same when the hub is stopped and started.
func (h *Hub) URL() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.options.TLS != nil {
		return "https://" + h.address
	}
	return "http://" + h.address
}

// Dial connects to an in-memory hub; it fits agent.Options.DialContext.
func (h *Hub) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	h.mu.Lock()
	pipes, ok := h.listener.(*pipeListener)
	h.mu.Unlock()
	if !ok {
		return nil, errors.New("agenttest: connection refused: the hub is stopped, or not in memory")
	}
	return pipes.dial(ctx)
}

// Start serves again after Stop. Sessions and attempts are as they were: see ForgetSession.
func (h *Hub) Start() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server != nil {
		return
	}
	var listener net.Listener
	if h.options.InMemory {
		h.address = "hub.test"
		listener = newPipeListener()
	} else {
		tcp, err := listen(h.address, h.options.Patience)
		if err != nil {
			h.t.Fatalf("agenttest: listen: %v", err)
		}
		h.address = tcp.Addr().String()
		listener = tcp
	}
	h.listener = listener
	if h.options.TLS != nil {
		listener = tls.NewListener(listener, h.options.TLS)
	}
	server := &http.Server{Handler: h.routes(), ConnState: h.track, ReadHeaderTimeout: time.Minute}
	serving := new(sync.WaitGroup)
	h.server, h.serving = server, serving
	serving.Go(func() { _ = server.Serve(listener) })
}

// listen tries until patience has passed: while a hub is stopped, a connection of another program may have its port.
func listen(address string, patience time.Duration) (net.Listener, error) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if l, err := net.Listen("tcp", address); err == nil || time.Now().After(end) {
			return l, err
		}
	}
}

// Stop closes the listener and every connection, like a hub that dies.
func (h *Hub) Stop() {
	h.mu.Lock()
	server, serving := h.server, h.serving
	h.server, h.listener = nil, nil
	h.mu.Unlock()
	if server == nil {
		return
	}
	_ = server.Close()
	serving.Wait()
}

// DropConnections closes every connection, like a network that fails for a moment.
func (h *Hub) DropConnections() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		_ = c.Close()
	}
}

// track keeps the open connections.
func (h *Hub) track(c net.Conn, state http.ConnState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch state {
	case http.StateNew:
		h.conns[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(h.conns, c)
		h.change()
	}
}

// change wakes all waiting calls. The mutex is held.
func (h *Hub) change() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Assign gives work to the agent. Missing Token, Cluster and RetrySafety are filled in; Attempt 0 becomes 1.
func (h *Hub) Assign(assignments ...protocol.Assignment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range assignments {
		a.Attempt = cmp.Or(a.Attempt, 1)
		a.Token = cmp.Or(a.Token, fmt.Sprintf("token-of-%s-%d", a.TaskID, a.Attempt))
		if a.Cluster == "" && len(h.registers) > 0 {
			a.Cluster = h.registers[len(h.registers)-1].Cluster
		}
		a.RetrySafety = cmp.Or(a.RetrySafety, api.Idempotent)
		h.outbox = append(h.outbox, a)
	}
	h.change()
}

// Command sends commands to the agent.
func (h *Hub) Command(commands ...protocol.Command) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commands = append(h.commands, commands...)
	h.change()
}

// WithholdLease has answers to polls renew no lease from now on, as of a hub that has lost touch with Temporal, or
// renew it again.
func (h *Hub) WithholdLease(withhold bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.withhold = withhold
}

// ChangeLease makes registrations and answers to polls carry another lease from now on.
func (h *Hub) ChangeLease(lease time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.options.Lease = lease
}

// ForgetSession loses the session and all attempts, like a restart of the hub. The agent's next request gets
// unknown_session.
func (h *Hub) ForgetSession() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != nil {
		h.session.gone = true
		h.session = nil
	}
	h.forgotten = h.attempts
	h.attempts = map[attemptKey]*attempt{}
	h.change()
}

// Fence acts as if another process had registered under the agent's id.
func (h *Hub) Fence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != nil {
		h.session.gone, h.session.fenced = true, true
		h.fenced[h.session.instance] = true
	}
	h.change()
}

// Supersede makes an attempt's result worthless: it gets attempt_superseded.
func (h *Hub) Supersede(taskID string, number int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.attempts, attemptKey{taskID, number})
	delete(h.forgotten, attemptKey{taskID, number})
	h.change()
}

// Proven is how many registrations have shown a session that the hub gave.
func (h *Hub) Proven() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.proven
}

// Registrations are the registrations accepted so far.
func (h *Hub) Registrations() []protocol.Register { return copyOf(h, &h.registers) }

// Polls are the polls taken so far.
func (h *Hub) Polls() []protocol.Poll { return copyOf(h, &h.polls) }

// Results are the results accepted so far.
func (h *Hub) Results() []Reported { return copyOf(h, &h.results) }

// Goodbyes counts the sessions that the agent ended.
func (h *Hub) Goodbyes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.goodbyes
}

func copyOf[T any](h *Hub, list *[]T) []T {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(*list)
}

// Op is one of the protocol's requests.
type Op string

// The requests that can be made to fail.
const (
	OpRegister Op = "register"
	OpResume   Op = "resume"
	OpPoll     Op = "poll"
	OpResult   Op = "result"
	OpGoodbye  Op = "goodbye"
	OpLog      Op = "log"
	// OpResultAnswer lets the hub take a result and then close the connection without an answer.
	OpResultAnswer Op = "result_answer"
)

// Fault describes how one request fails. The zero Fault closes the connection without an answer.
type Fault struct {
	Status int
	Code   string // "" answers without a problem body, as a proxy does
}

// Fail makes the next requests of a kind fail, one for each fault.
func (h *Hub) Fail(op Op, faults ...Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[op] = append(h.faults[op], faults...)
}

// Heal makes the requests of a kind succeed again.
func (h *Hub) Heal(op Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[op] = nil
}

// fault carries out the next fault of a request, if there is one.
func (h *Hub) fault(w http.ResponseWriter, op Op) bool {
	h.mu.Lock()
	f := h.takeFault(op)
	h.mu.Unlock()
	switch {
	case f == nil:
		return false
	case f.Status == 0:
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to close a connection without an answer
	case f.Code == "":
		http.Error(w, "bad gateway", f.Status)
	default:
		problem(w, f.Status, f.Code, "the test asked for it")
	}
	return true
}

// takeFault removes the next fault. The mutex is held.
func (h *Hub) takeFault(op Op) *Fault {
	waiting := h.faults[op]
	if len(waiting) == 0 {
		return nil
	}
	h.faults[op] = waiting[1:]
	h.change()
	return &waiting[0]
}

// FaultsLeft counts the faults that have not happened yet.
func (h *Hub) FaultsLeft(op Op) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.faults[op])
}

// pipeListener accepts in-memory connections.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, errors.New("agenttest: connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "hub.test" }
