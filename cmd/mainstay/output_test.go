package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/cli/app"
)

func TestAgentTable(t *testing.T) {
	t.Parallel()
	url, _ := answering(t, 200, "application/json", `{"agents": [
		{"id": "build-1", "cluster": "default", "status": "online", "role": "member", "epoch": 3, "max_tasks": 4, "running": 2, "host": "h\u001b[2J1", "pid": 77, "cpu_percent": 12.4, "last_heartbeat": "2026-11-21T11:59:58Z"},
		{"id": "a", "cluster": "other", "status": "offline", "role": "member", "epoch": 12, "max_tasks": 1}]}`)
	got := run(t.Context(), "", "agent", "list", "--server", url)
	require.Equal(t, app.ExitOK, got.code, got.stderr)
	require.Equal(t, `AGENT    CLUSTER  STATUS   HEALTH  ROLE    TASKS  EPOCH  CPU  HOST    PID  LAST HEARTBEAT
build-1  default  online   -       member  2/4    3      12%  h [2J1  77   2.0s ago
a        other    offline  -       member  ?/1    12     -    -       -
`, got.stdout)
}

func TestTableCells(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	table := app.NewTable(&out, "A", "B", "C")
	table.Row("", "two\nlines", "")
	require.NoError(t, table.Flush())
	require.Equal(t, "A  B          C\n-  two lines\n", out.String())
}

func TestAgo(t *testing.T) {
	t.Parallel()
	a := &app.App{Now: func() time.Time { return testNow }}
	require.Empty(t, a.Ago(nil))
	for before, text := range map[time.Duration]string{
		250 * time.Millisecond: "250ms ago", 1500 * time.Millisecond: "1.5s ago", 59 * time.Second: "59s ago",
		119 * time.Minute: "119m ago", 47 * time.Hour: "47h ago", 72 * time.Hour: "3d ago", -30 * time.Second: "in 30s",
	} {
		at := testNow.Add(-before)
		require.Equal(t, text, a.Ago(&at))
	}
}

func TestByteCount(t *testing.T) {
	t.Parallel()
	for n, text := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 5 << 40: "5.0 TiB"} {
		require.Equal(t, text, app.ByteCount(n))
	}
}
