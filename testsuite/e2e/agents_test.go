package e2e

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
)

// running is an agent in the test's process.
type running struct {
	own    *agent.Agent
	cancel context.CancelFunc
	done   chan error
}

// stop stops the agent gracefully and waits for it.
func (r *running) stop(t testing.TB) {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.done:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the agent did not stop")
	}
}

// startAgent runs an agent until the test ends.
func startAgent(t testing.TB, options agent.Options, handlers map[string]agent.Handler) *running {
	t.Helper()
	options.Logger = slog.New(slog.DiscardHandler)
	a, err := agent.New(options)
	require.NoError(t, err)
	for name, handler := range handlers {
		a.Handle(name, handler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{own: a, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- a.Run(ctx) }()
	t.Cleanup(cancel)
	return r
}

// echo answers its payload.
func echo(_ context.Context, task *agent.Task) (any, error) {
	return task.Payload, nil
}
