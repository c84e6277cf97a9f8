package dev

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDevReport(t *testing.T) {
	t.Parallel()
	r := Report{
		URL:       "http://127.0.0.1:8080",
		DocsURL:   "http://127.0.0.1:8080/docs",
		UIURL:     "http://127.0.0.1:8233",
		Temporal:  "127.0.0.1:7233",
		Namespace: "default",
		DataDir:   "/x/.mainstay",
		Logs:      "/x/.mainstay/logs",
		Cluster:   "default",
		Agents:    []Agent{{"agent-1", 11}, {"agent-2", 12}},
		Slots:     4,
		Exec:      true,
	}
	var out bytes.Buffer
	require.NoError(t, r.write(&out, "mainstay"))
	require.Equal(t, strings.TrimLeft(`
Mainstay is running. Ctrl-C stops it.

  Fleet page http://127.0.0.1:8080/
  REST API   http://127.0.0.1:8080  (described at http://127.0.0.1:8080/docs)
  Web UI     http://127.0.0.1:8233  (of Temporal)
  Temporal   127.0.0.1:7233, namespace default
  Data       /x/.mainstay
  Logs       /x/.mainstay/logs
  Cluster    default
  Agents     agent-1    pid 11       4 tasks at a time
             agent-2    pid 12       4 tasks at a time
  Security   off: only this machine can reach it

Try in another terminal:
  mainstay task submit --wait -- echo hello
  mainstay agent list
  kill -9 11    (its work moves to another agent, and it is started again)
  mainstay demo

`, "\n"), out.String())

	out.Reset()
	r.Temporal, r.OpenTemporal, r.Security = "192.0.2.1:7233", true, true
	r.TemporalKeyFile = "/x/.mainstay/temporal-key"
	require.NoError(t, r.write(&out, "mainstay"))
	require.Contains(t, out.String(), "Warning    others than this machine can reach Temporal on 192.0.2.1:7233, ")
	require.Contains(t, out.String(), "need the key in /x/.mainstay/temporal-key")

	out.Reset()
	r.Agents, r.URL, r.DataDir, r.UIURL = nil, "http://127.0.0.1:9", "", ""
	require.NoError(t, r.write(&out, "bin/mainstay"))
	require.Contains(t, out.String(), "in memory, gone at the end")
	require.Contains(t, out.String(), "bin/mainstay agent run --hub http://127.0.0.1:9 --id my-agent --allow-exec")
	require.NotContains(t, out.String(), "Web UI")
	require.NotContains(t, out.String(), "task submit")
}
