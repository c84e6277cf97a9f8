package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"mainstay.dev/mainstay/access"
	"mainstay.dev/mainstay/gateway"
	"mainstay.dev/mainstay/httpapi"
	"mainstay.dev/mainstay/hub"
)

// everyRoute serves all parts, as one process may, and calls nobody.
func everyRoute(t *testing.T, o httpapi.Options) *httpapi.Server {
	t.Helper()
	temporal, err := client.NewLazyClient(client.Options{})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	server := httpapi.New(o)
	gateway.New(gateway.Options{Client: temporal}).Register(server.API())
	h, err := hub.New(hub.Options{ID: "h", Client: temporal, Key: []byte("a key of at least 32 characters.")})
	require.NoError(t, err)
	h.Register(server.API())
	return server
}

// TestEveryRouteSaysWhoMayUseIt fails for a route that was registered without a policy (httpapi.Register, Server.Handle).
func TestEveryRouteSaysWhoMayUseIt(t *testing.T) {
	t.Parallel()
	routes := everyRoute(t, httpapi.Options{}).Routes()
	require.Greater(t, len(routes), 50)
	for _, r := range routes {
		require.True(t, r.Policy.Declared(), "%s %s has no policy: nobody could use it while security is on", r.Method, r.Path)
		if r.Policy.Role() == access.Viewer {
			require.Equal(t, "GET", r.Method, "%s changes something, and a viewer may do it", r.Path)
		}
	}
}
