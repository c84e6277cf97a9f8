package process

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCommandsGainNoSecrets has an operator of one tenant look for secrets: in what a command inherits and in the
// environment of the processes above it, and by a control plane of its own on the same Temporal.
func TestCommandsGainNoSecrets(t *testing.T) {
	t.Parallel()
	secrets := map[string]string{}
	env := []string{"GIVEN=to-commands"}
	for i, name := range []string{"MAINSTAY_ADMIN_TOKEN", "MAINSTAY_JOIN_TOKEN", "MAINSTAY_TOKEN_KEY", "TEMPORAL_API_KEY",
		"OTEL_EXPORTER_OTLP_HEADERS", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL"} {
		secrets[name] = fmt.Sprintf("canary-0123456789-abcdef-number-%d", i)
		env = append(env, name+"="+secrets[name])
	}
	_, report := startDevIn(t, env, t.TempDir(), "127.0.0.1:0", "--agents", "1", "--allow-exec", "--exec-env", "GIVEN")
	mainstay := func(token string, args ...string) (int, string) {
		c := start(t, []string{"MAINSTAY_TOKEN=" + token, "MAINSTAY_SERVER=" + report.URL}, args...)
		return c.exit(t), c.stdout.String() + c.stderr.String()
	}
	code, created := mainstay(secrets["MAINSTAY_ADMIN_TOKEN"], "token", "create", "acme", "--role", "operator",
		"--tenant", "acme", "-o", "json")
	require.Equal(t, 0, code, created)
	var acme struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(created), &acme))
	run := func(command ...string) (int, string) {
		return mainstay(acme.Token, append([]string{"task", "submit", "--wait", "--"}, command...)...)
	}

	code, seen := run("sh", "-c", `env; p=$$; for above in 1 2 3 4; do
		echo "process $above:"; tr '\0' '\n' </proc/$p/environ
		p=$(sed -n 's/^PPid:[^0-9]*//p' /proc/$p/status)
	done`)
	require.Equal(t, 0, code, seen)
	require.Contains(t, seen, "process 4:")
	require.Contains(t, seen, "GIVEN=to-commands")
	require.Contains(t, seen, "PATH=")
	for name, value := range secrets {
		require.NotContains(t, seen, value, name)
	}

	program, err := binary()
	require.NoError(t, err)
	code, said := run("env", "TEMPORAL_ADDRESS="+report.Temporal, program, "serve", "--roles", "gateway", "--insecure",
		"--http", "127.0.0.1:0", "--audit-log", "off")
	require.NotEqual(t, 0, code)
	require.Contains(t, said, "the key is missing or wrong")
}

// TestDevForOthersAsksWhoTheyAre runs `dev` on all addresses: it makes an admin token, its own agents join, and nobody
// else gets in; and what a task runs sees none of the secrets.
func TestDevForOthersAsksWhoTheyAre(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := "MAINSTAY_TOKEN_KEY=" + strings.Repeat("01234567", 5)
	args := append(devArgs(dir, "0.0.0.0:0"), "--agents", "1", "--allow-exec", "--ui", "0.0.0.0:0")
	p := start(t, []string{secret}, args...)
	t.Cleanup(func() { killAgents(dir) })
	var report struct {
		URL        string `json:"url"`
		UIURL      string `json:"ui_url"`
		Security   bool   `json:"security"`
		Cluster    string `json:"cluster"`
		AdminToken string `json:"admin_token_file"`
		JoinToken  string `json:"join_token_file"`
	}
	require.Eventually(t, func() bool { return json.Unmarshal([]byte(p.stdout.String()), &report) == nil }, patience,
		20*time.Millisecond, "%s", &p.stderr)
	require.True(t, report.Security)
	admin, err := os.ReadFile(report.AdminToken)
	require.NoError(t, err)
	info, err := os.Stat(report.AdminToken)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	log, err := os.ReadFile(dir + "/logs/control-plane.log")
	require.NoError(t, err)
	require.NotContains(t, string(log), strings.TrimSpace(string(admin)))

	const refused = 7
	fails(t, nil, refused, []string{"MAINSTAY_TOKEN"}, "agent", "list", "--server", report.URL)
	fails(t, []string{"MAINSTAY_TOKEN=wrong"}, refused, []string{"not known here"}, "agent", "list", "--server",
		report.URL)
	fails(t, nil, refused, []string{"join token"}, "agent", "run", "--allow-exec", "--id", "stranger", "--hub",
		report.URL)
	token := "MAINSTAY_TOKEN=" + strings.TrimSpace(string(admin))
	run := func(args ...string) string {
		c := start(t, []string{token, "MAINSTAY_SERVER=" + report.URL}, args...)
		require.Equal(t, 0, c.exit(t), "%s", &c.stderr)
		return c.stdout.String()
	}
	require.Contains(t, run("agent", "list"), "agent-1")
	require.Contains(t, run("token", "whoami"), "first admin (token), admin of all tenants")
	ui := func(authorization string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, report.UIURL+"/api/v1/namespaces", nil)
		require.NoError(t, err)
		if authorization != "" {
			request.Header.Set("Authorization", authorization)
		}
		response, err := http.DefaultTransport.RoundTrip(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode, response.Header.Get("WWW-Authenticate")
	}
	var made struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(run("token", "create", "looker", "--role", "operator", "-o", "json")),
		&made))
	password := func(token string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+token))
	}
	first := strings.TrimSpace(string(admin))
	for authorization, want := range map[string]int{
		"":                     http.StatusUnauthorized,
		password("wrong"):      http.StatusUnauthorized,
		password(made.Token):   http.StatusForbidden,
		password(first):        http.StatusOK,
		"Bearer " + made.Token: http.StatusForbidden,
		"Bearer " + first:      http.StatusOK,
	} {
		status, asks := ui(authorization)
		require.Equal(t, want, status, "the Web UI for %q", authorization)
		require.Equal(t, status == http.StatusUnauthorized, strings.HasPrefix(asks, "Basic "), asks)
	}
	join, err := os.ReadFile(report.JoinToken)
	require.NoError(t, err)
	for program, example := range map[string]string{"python3": "../../examples/python/agent.py",
		"sh": "../../examples/shell/agent.sh"} {
		id := "example-" + program
		e := launch(t, []string{"HUB=" + report.URL, "CLUSTER=" + report.Cluster, "ID=" + id,
			"MAINSTAY_JOIN_TOKEN=" + strings.TrimSpace(string(join)), "TMPDIR=" + t.TempDir()}, program, example)
		t.Cleanup(func() { _ = syscall.Kill(-e.pid(), syscall.SIGTERM); e.end(t) })
		require.Contains(t, run("task", "submit", "--wait", "--type", "echo", "--agent", id, "--payload",
			`"from an example"`), "from an example")
	}
	seen := run("task", "submit", "--wait", "--", "env")
	require.Contains(t, seen, "PATH=")
	for _, name := range []string{"MAINSTAY_JOIN_TOKEN", "MAINSTAY_ADMIN_TOKEN", "MAINSTAY_TOKEN_KEY",
		"MAINSTAY_TOKEN="} {
		require.NotContains(t, seen, name)
	}
	p.signal(t, syscall.SIGINT)
	require.Equal(t, 0, p.exit(t))
}
