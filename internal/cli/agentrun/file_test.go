package agentrun

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/config/agentconfig"
	"mainstay.dev/sdk/agent"
)

// flagsOf is `agent run` with a command line that is parsed and not run.
func flagsOf(t *testing.T, args ...string) *cobra.Command {
	t.Helper()
	c := Command(app.New("dev"))
	require.NoError(t, c.ParseFlags(args))
	return c
}

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestAgentsFile(t *testing.T) {
	t.Parallel()
	path := written(t, `
agent:
  agent_id: agent-us-east-1a-001
  address: 10.0.1.5:9090
  availability_zone: us-east-1a
  agent_group: prod
  hubs: [http://a:8080, http://b:8080]
  slots: 4
  capabilities: [gpu]
  metadata: {rack: "7"}
  allow_exec: true
heartbeat:
  interval_seconds: 20
  timeout_seconds: 60
health_check:
  port: 9191
  path: /alive
graceful_shutdown:
  timeout_seconds: 45
`)
	c := flagsOf(t, "--slots", "9")
	p, expected, err := fromFile(c, path, "127.0.0.1:9091")
	require.NoError(t, err)
	require.Equal(t, probes{"127.0.0.1:9191", "/alive", true}, p)
	require.Equal(t, agentconfig.Heartbeat{IntervalSeconds: 20, TimeoutSeconds: 60}, expected)
	for name, want := range map[string]string{
		"id": "agent-us-east-1a-001", "address": "10.0.1.5:9090", "zone": "us-east-1a", "group": "prod",
		"hub": "[http://a:8080,http://b:8080]", "slots": "9", "capability": "[gpu]", "metadata": "rack=7",
		"allow-exec": "true", "stop-timeout": "45s", "cluster": "default",
	} {
		require.Equal(t, want, c.Flags().Lookup(name).Value.String(), name)
	}

	p, _, err = fromFile(flagsOf(t, "--health", ":1"), path, ":1")
	require.NoError(t, err)
	require.Equal(t, ":1", p.address, "flags win")
	p, _, err = fromFile(flagsOf(t), written(t, "health_check: {port: 0}"), "127.0.0.1:9091")
	require.NoError(t, err)
	require.Empty(t, p.address)
	c = flagsOf(t)
	p, _, err = fromFile(c, written(t, "agent: {slots: 2}"), c.Flags().Lookup("health").Value.String())
	require.NoError(t, err)
	require.Equal(t, probes{"127.0.0.1:9091", "/health", false}, p)
}

func TestAgentsFileOfDeploy(t *testing.T) {
	t.Parallel()
	_, _, err := fromFile(flagsOf(t), "../../../deploy/agent.yaml", "")
	require.NoError(t, err)
}

func TestAgentsFileIsChecked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"agent:\n  agent_ip: x":                    "agent.agent_ip: ",
		"heartbeat: {interval_seconds: soon}":      "heartbeat.interval_seconds: must be a whole number",
		"health_check:\n  port: 99999":             "health_check.port: must be between 0 and 65535",
		"health_check: {path: health}":             "health_check.path: must be a path like /health",
		"heartbeats: {}":                           "heartbeats: ",
		"graceful_shutdown: {timeout_seconds: -1}": "graceful_shutdown.timeout_seconds: must be between 1 and 86400",
	} {
		_, _, err := fromFile(flagsOf(t), written(t, text), "")
		require.Regexp(t, `agent\.yaml:\d+:\d+: `+regexp.QuoteMeta(want), err)
		require.Equal(t, app.ExitUsage, app.ExitCode(err))
	}
}

// The probes are on by default, so a second agent on the machine finds their address in use. It goes on without.
func TestProbesOfASecondAgent(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	asked := make(chan string, 4)
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path })
	stop, err := serveAgentHealth(probes{"127.0.0.1:0", "/alive", false}, handler, logger)
	require.NoError(t, err)
	defer stop()
	address := probesAt(t, &log)
	for _, path := range []string{"/alive", "/readyz"} {
		answer, err := http.Get("http://" + address + path)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
	}
	require.Equal(t, "/health", <-asked)
	require.Equal(t, "/readyz", <-asked)

	second, err := serveAgentHealth(probes{address, "/health", false}, handler, logger)
	require.NoError(t, err)
	second()
	require.Contains(t, log.String(), "There are no health probes of this agent")
	_, err = serveAgentHealth(probes{address, "/health", true}, handler, logger)
	require.ErrorContains(t, err, "Choose another address with --health")
}

// probesAt is the address that the log tells.
func probesAt(t *testing.T, log *bytes.Buffer) string {
	t.Helper()
	served := regexp.MustCompile(`"Health probes are served" address=(\S+)`).FindStringSubmatch(log.String())
	require.NotNil(t, served, "%s", log)
	return served[1]
}

// TestProbesHoldFewConnections: whoever can reach the probes neither takes the agent's files nor keeps its probes out.
func TestProbesHoldFewConnections(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			<-r.Context().Done()
		}
	})
	var log bytes.Buffer
	stop, err := serveAgentHealth(probes{"127.0.0.1:0", "/health", true}, handler,
		slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	defer stop()
	address := probesAt(t, &log)
	dial := func(sends string) net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(conn, sends)
		require.NoError(t, err)
		return conn
	}
	oldest := dial("GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
	for range maxProbes {
		dial("")
	}
	_, err = io.ReadAll(oldest)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it makes room")
	answer, err := io.ReadAll(dial("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"))
	require.NoError(t, err)
	require.Contains(t, string(answer), "200 OK")
	require.Contains(t, string(answer), "Connection: close")
}

func TestWarningOfASlowHub(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	registered := agent.Event{Kind: agent.EventRegistered, HeartbeatInterval: 5 * time.Second,
		FailureThreshold: 15 * time.Second}
	warnOfHub(logger, registered, agentconfig.Heartbeat{IntervalSeconds: 20, TimeoutSeconds: 60})
	warnOfHub(logger, registered, agentconfig.Heartbeat{})
	require.Empty(t, log.String())
	warnOfHub(logger, registered, agentconfig.Heartbeat{IntervalSeconds: 20, TimeoutSeconds: 10})
	require.Contains(t, log.String(), "hub.failure_threshold")
	require.NotContains(t, log.String(), "hub.heartbeat_interval")
}

// A server of tools that the agent starts runs as the user of the commands, which can read its variables.
func TestCommandsDoNotSeeWhatServersOfToolsGet(t *testing.T) {
	tools := written(t, "servers: {s: {command: [cat], env: [PATH, SEARCH_KEY], tools: [t]}}")
	run := func(args ...string) error {
		c := Command(app.New("dev"))
		c.SetArgs(append([]string{"--allow-exec", "--mcp", tools, "--health", "", "--hub", "http://127.0.0.1:1",
			"--give-up-after", "1ms"}, args...))
		return c.ExecuteContext(t.Context())
	}
	require.ErrorContains(t, run("--exec-env", "PATH"), "commands could read SEARCH_KEY")
	err := run("--exec-env", "PATH,SEARCH_KEY")
	require.Error(t, err, "no hub answers there")
	require.NotContains(t, err.Error(), "SEARCH_KEY")
}
