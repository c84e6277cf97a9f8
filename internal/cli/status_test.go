package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	const healthy = `{"status":"healthy","roles":["hub","gateway"],"version":"v1","uptime_seconds":7200,"metadata_store_connected":true,
"hub_id":"hub-1","agents":3,"active_leases":1,"last_heartbeat_success":true,"last_heartbeat":"2026-11-21T11:59:59Z"}`
	f := clitest.NewAPI(t, map[string]clitest.Answer{"GET /health": {Status: 200, Body: healthy}})
	got := f.At(t, "status")
	require.Equal(t, app.ExitOK, got.Code, got.Stderr)
	require.Equal(t, strings.TrimLeft(`
Server         `+f.URL+`
Status         healthy
Roles          hub, gateway
Version        v1
Up for         2h
Temporal       answers
Hub            hub-1
Own lease      fresh
Renewed        1.0s ago
Agents         3
Active leases  1
`, "\n"), got.Stdout)
	require.JSONEq(t, healthy, clitest.Run(t.Context(), "", "status", "-o", "json", "--server", f.URL).Stdout)

	away := clitest.NewAPI(t, map[string]clitest.Answer{"GET /health": {Status: 503,
		Body: `{"status":"unhealthy","version":"v1","uptime_seconds":1,"metadata_store_connected":false}`}})
	got = away.At(t, "status")
	require.Equal(t, app.ExitUnreachable, got.Code)
	require.Contains(t, got.Stdout, "does not answer")
	require.Contains(t, got.Stderr, "is unhealthy")
	other := clitest.NewAPI(t, map[string]clitest.Answer{"GET /health": {Status: 200, Body: "OK"}}).At(t, "status")
	require.Equal(t, app.ExitFailure, other.Code)
	require.Contains(t, other.Stderr, "is this the address of its REST API?")
}
