package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/cli/app"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	const healthy = `{"status":"healthy","roles":["hub","gateway"],"version":"v1","uptime_seconds":7200,"metadata_store_connected":true,
"hub_id":"hub-1","agents":3,"active_leases":1,"last_heartbeat_success":true,"last_heartbeat":"2026-11-21T11:59:59Z"}`
	f := newFakeAPI(t, map[string]answer{"GET /health": {200, healthy}})
	got := f.at(t, "status")
	require.Equal(t, app.ExitOK, got.code, got.stderr)
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
`, "\n"), got.stdout)
	require.JSONEq(t, healthy, run(t.Context(), "", "status", "-o", "json", "--server", f.URL).stdout)

	away := newFakeAPI(t, map[string]answer{"GET /health": {503, `{"status":"unhealthy","version":"v1","uptime_seconds":1,"metadata_store_connected":false}`}})
	got = away.at(t, "status")
	require.Equal(t, app.ExitUnreachable, got.code)
	require.Contains(t, got.stdout, "does not answer")
	require.Contains(t, got.stderr, "is unhealthy")
	other := newFakeAPI(t, map[string]answer{"GET /health": {200, "OK"}}).at(t, "status")
	require.Equal(t, app.ExitFailure, other.code)
	require.Contains(t, other.stderr, "is this the address of its REST API?")
}

func TestTaskSubmitBatch(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, map[string]answer{"POST /api/v1/agents/tasks/batch": {202, `{"tasks":[{"id":"t-1","status":"queued"},{"error":{"code":"unknown_cluster","detail":"no such cluster"}}],"accepted":1,"rejected":1}`}})
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	for _, text := range []string{`[{"type":"a"},{"type":"b"}]`, `{"type":"a"}` + "\n" + `{"type":"b"}`} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		f.requests = nil
		got := f.at(t, "task", "submit-batch", path)
		require.Equal(t, app.ExitUsage, got.code)
		require.Equal(t, "1 task accepted, 1 refused.\n", got.stdout)
		require.Contains(t, got.stderr, "Task 2 was refused: no such cluster (unknown_cluster)")
		require.Len(t, f.requests, 1)
		require.Equal(t, http.MethodPost, f.requests[0].method)
		require.JSONEq(t, `[{"type":"a"},{"type":"b"}]`, f.requests[0].body)
	}
	for text, want := range map[string]string{"": "holds no tasks", `{"type":`: "is not JSON"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		got := f.at(t, "task", "submit-batch", path)
		require.Equal(t, app.ExitUsage, got.code)
		require.Contains(t, got.stderr, want)
	}
}
