package agent_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/agent/agenttest"
	"mainstay.dev/sdk/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is an agent that runs against a fake hub.
type bundle struct {
	t      *testing.T
	hub    *agenttest.Hub
	agent  *agent.Agent
	stop   context.CancelFunc
	result chan error
	limit  time.Duration // how long to wait for something before the test fails

	mu     sync.Mutex
	events []agent.Event
	heard  chan struct{}
}

// start runs an agent with the usual test handlers. change may alter its options.
func start(t *testing.T, hub *agenttest.Hub, change func(*agent.Options), handlers map[string]agent.Handler) *bundle {
	t.Helper()
	b := &bundle{t: t, hub: hub, result: make(chan error, 1), heard: make(chan struct{})}
	o := agent.Options{HubURLs: []string{hub.URL()}, Cluster: "demo", ID: "worker-1", Slots: 4, OnEvent: b.record}
	if change != nil {
		change(&o)
	}
	b.limit = 15 * time.Second
	if o.DialContext != nil {
		b.limit = time.Hour // of the bubble
	}
	a, err := agent.New(o)
	require.NoError(t, err)
	for taskType, handler := range handlers {
		a.Handle(taskType, handler)
	}
	b.agent = a
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.result <- a.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return b
}

func (b *bundle) record(e agent.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
	close(b.heard)
	b.heard = make(chan struct{})
}

// await waits for the first event of a kind.
func (b *bundle) await(kind agent.EventKind) agent.Event {
	b.t.Helper()
	limit := time.NewTimer(b.limit)
	defer limit.Stop()
	for {
		b.mu.Lock()
		for _, e := range b.events {
			if e.Kind == kind {
				b.mu.Unlock()
				return e
			}
		}
		heard := b.heard
		b.mu.Unlock()
		select {
		case <-heard:
		case <-limit.C:
			b.t.Fatalf("waited in vain for the event %s", kind)
		}
	}
}

// count is how many events of a kind there were.
func (b *bundle) count(kind agent.EventKind) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, e := range b.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// ends waits for Run's result.
func (b *bundle) ends() error {
	b.t.Helper()
	select {
	case err := <-b.result:
		return err
	case <-time.After(b.limit):
		b.t.Fatal("Run does not return")
		return nil
	}
}

// inMemory is for tests in a synctest bubble.
func inMemory(hub *agenttest.Hub) func(*agent.Options) {
	return func(o *agent.Options) { o.DialContext = hub.Dial }
}

// pass lets time of a synctest bubble pass.
func pass(d time.Duration) { <-time.After(d) }

func assign(task, taskType string) protocol.Assignment {
	return protocol.Assignment{TaskID: task, Type: taskType}
}

// gate is a handler that waits until it is opened or its context ends.
type gate struct {
	mu      sync.Mutex
	calls   int
	started chan struct{} // one for each call
	open    chan struct{}
	cause   chan error // why a context ended
}

func newGate() *gate {
	return &gate{started: make(chan struct{}, 16), open: make(chan struct{}), cause: make(chan error, 16)}
}

func (g *gate) handle(ctx context.Context, t *agent.Task) (any, error) {
	g.mu.Lock()
	g.calls++
	g.mu.Unlock()
	g.started <- struct{}{}
	select {
	case <-g.open:
		return map[string]int{"attempt": t.Attempt}, nil
	case <-ctx.Done():
		g.cause <- context.Cause(ctx)
		return nil, errors.New("interrupted")
	}
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

// atWork runs an agent in a bubble that has begun its only attempt, t1, behind a gate.
func atWork(t *testing.T) (*agenttest.Hub, *gate, *bundle) {
	t.Helper()
	hub, g := agenttest.NewHub(t, agenttest.Options{InMemory: true}), newGate()
	b := start(t, hub, inMemory(hub), map[string]agent.Handler{"gate": g.handle})
	hub.WaitRegistered(1)
	hub.Assign(assign("t1", "gate"))
	<-g.started
	return hub, g, b
}

// touch makes an empty file.
func touch(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, nil, 0o600))
}

// newest is the last poll that the hub took.
func newest(polls []protocol.Poll) protocol.Poll { return polls[len(polls)-1] }
