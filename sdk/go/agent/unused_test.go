package agent_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/agent"
)

// What is wrong with a hub is said once, with what to do, and without the password in its address.
func TestTroubleWithAHubIsSaidOnce(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	var tries sync.WaitGroup
	tries.Add(3)
	left := 3
	a, err := agent.New(agent.Options{HubURLs: []string{"http://bob:s3cret@" + gone.Listener.Addr().String()}, Cluster: "c",
		ID: "a", Logger: slog.New(slog.NewTextHandler(&log, nil)), OnEvent: func(e agent.Event) {
			if left--; e.Kind == agent.EventReconnecting && left >= 0 {
				tries.Done()
			}
		}})
	require.NoError(t, err)
	a.Handle("x", func(context.Context, *agent.Task) (any, error) { return nil, nil })
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	tries.Wait()
	cancel()
	require.NoError(t, <-ended)
	require.Equal(t, 1, strings.Count(log.String(), "The hub cannot be used"), log.String())
	require.Contains(t, log.String(), "connection refused")
	require.Contains(t, log.String(), "is a hub running there")
	require.Contains(t, log.String(), "hub=http://***@"+gone.Listener.Addr().String())
	require.NotContains(t, log.String(), "bob")
	require.NotContains(t, log.String(), "s3cret")
}
