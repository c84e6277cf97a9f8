package process

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDevForOthersAsksWhoTheyAre runs `dev` on all addresses: it makes an admin token, its own agents join, and nobody else
// gets in; and what a task runs sees none of the secrets.
func TestDevForOthersAsksWhoTheyAre(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := "MAINSTAY_TOKEN_KEY=" + strings.Repeat("k", 40)
	p := start(t, []string{secret}, append(devArgs(dir, "0.0.0.0:0"), "--agents", "1", "--allow-exec")...)
	t.Cleanup(func() { killAgents(dir) })
	var report struct {
		URL        string `json:"url"`
		Security   bool   `json:"security"`
		Cluster    string `json:"cluster"`
		AdminToken string `json:"admin_token_file"`
		JoinToken  string `json:"join_token_file"`
	}
	require.Eventually(t, func() bool { return json.Unmarshal([]byte(p.stdout.String()), &report) == nil }, patience, 20*time.Millisecond, "%s", &p.stderr)
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
	fails(t, []string{"MAINSTAY_TOKEN=wrong"}, refused, []string{"not known here"}, "agent", "list", "--server", report.URL)
	fails(t, nil, refused, []string{"join token"}, "agent", "run", "--allow-exec", "--id", "stranger", "--hub", report.URL)
	token := "MAINSTAY_TOKEN=" + strings.TrimSpace(string(admin))
	run := func(args ...string) string {
		c := start(t, []string{token, "MAINSTAY_SERVER=" + report.URL}, args...)
		require.Equal(t, 0, c.exit(t), "%s", &c.stderr)
		return c.stdout.String()
	}
	require.Contains(t, run("agent", "list"), "agent-1")
	require.Contains(t, run("token", "whoami"), "first admin (token), admin of all tenants")
	join, err := os.ReadFile(report.JoinToken)
	require.NoError(t, err)
	for program, example := range map[string]string{"python3": "../../examples/python/agent.py", "sh": "../../examples/shell/agent.sh"} {
		id := "example-" + program
		e := launch(t, []string{"HUB=" + report.URL, "CLUSTER=" + report.Cluster, "ID=" + id, "MAINSTAY_JOIN_TOKEN=" + strings.TrimSpace(string(join))}, program, example)
		t.Cleanup(func() { _ = syscall.Kill(-e.pid(), syscall.SIGTERM); e.end(t) })
		require.Contains(t, run("task", "submit", "--wait", "--type", "echo", "--agent", id, "--payload", `"from an example"`), "from an example")
	}
	seen := run("task", "submit", "--wait", "--", "env")
	require.Contains(t, seen, "PATH=")
	for _, name := range []string{"MAINSTAY_JOIN_TOKEN", "MAINSTAY_ADMIN_TOKEN", "MAINSTAY_TOKEN_KEY", "MAINSTAY_TOKEN="} {
		require.NotContains(t, seen, name)
	}
	p.signal(t, syscall.SIGINT)
	require.Equal(t, 0, p.exit(t))
}
