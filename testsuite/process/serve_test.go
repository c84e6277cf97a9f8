package process

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// tokenKey seals the tokens of the hubs of these tests.
const tokenKey = "MAINSTAY_TOKEN_KEY=00112233445566778899aabbccddeeff"

// serve runs a control plane against the shared Temporal, with a hub of its own, and returns its URL.
func serve(t testing.TB, hub string) (*program, string) {
	t.Helper()
	server, err := temporal()
	require.NoError(t, err)
	p := start(t, []string{"TEMPORAL_ADDRESS=" + server.Address(), tokenKey}, "serve", "--insecure", "--http",
		"127.0.0.1:0", "--hub-id", hub, "--log-format", "json")
	return p, servedAt(t, p)
}

// servedAt waits until a control plane serves, and returns its URL.
func servedAt(t testing.TB, p *program) string {
	t.Helper()
	p.says(t, `"msg":"Serving"`)
	for line := range strings.Lines(p.stderr.String()) {
		var entry struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "Serving" {
			return "http://" + entry.Address
		}
	}
	t.Fatal("the log does not say where it serves")
	return ""
}

// clusterNamed makes a cluster with the program.
func clusterNamed(t testing.TB, url, name string) string {
	t.Helper()
	p := start(t, nil, "cluster", "create", name, "--server", url)
	require.Equal(t, 0, p.exit(t), "%s", &p.stderr)
	return name
}

// runAgent runs an agent that may run commands.
func runAgent(t testing.TB, url, cluster, id string, more ...string) *program {
	t.Helper()
	return start(t, nil, append([]string{"agent", "run", "--hub", url, "--cluster", cluster, "--id", id,
		"--allow-exec"}, more...)...)
}

func TestServeRunsAFleet(t *testing.T) {
	t.Parallel()
	plane, url := serve(t, "hub-serve")
	c := clusterNamed(t, url, "serve")
	agents := []*program{runAgent(t, url, c, "serve-1"), runAgent(t, url, c, "serve-2")}
	for i, id := range []string{"serve-1", "serve-2"} {
		require.Equal(t, agents[i].pid(), online(t, url, id))
	}
	client := start(t, nil, "task", "submit", "--server", url, "--cluster", c, "--wait", "-o", "json", "--", "echo",
		"hello")
	require.Equal(t, 0, client.exit(t), "%s", &client.stderr)
	require.Contains(t, client.stdout.String(), `hello\n`)

	plane.signal(t, syscall.SIGTERM)
	require.Equal(t, 0, plane.exit(t), "%s", &plane.stderr)
	for _, a := range agents {
		a.says(t, "The hub cannot be used; trying again, work goes on meanwhile")
		a.signal(t, syscall.SIGTERM)
		require.Equal(t, 0, a.exit(t), "%s", &a.stderr)
	}
}

// TestKilledControlPlaneComesBack kills hub, gateway and worker while a task runs: it goes on and is not run again. What
// is submitted meanwhile waits for the control plane.
func TestKilledControlPlaneComesBack(t *testing.T) {
	t.Parallel()
	server, err := temporal()
	require.NoError(t, err)
	env := []string{"TEMPORAL_ADDRESS=" + server.Address(), tokenKey}
	args := []string{"serve", "--insecure", "--http", freeAddress(t), "--hub-id", "hub-back", "--log-format", "json"}
	first := start(t, env, args...)
	url := servedAt(t, first)
	c := clusterNamed(t, url, "back")
	runAgent(t, url, c, "back-1")
	online(t, url, "back-1")
	dir := t.TempDir()
	id := submit(t, url, execTask(c, `echo begun >> "$0/ledger"; until [ -e "$0/go" ]; do sleep 0.05; done`, dir))
	require.Eventually(t, func() bool { return len(lines(dir+"/ledger")) == 1 }, patience, tick)

	first.signal(t, syscall.SIGKILL)
	require.Equal(t, -1, first.exit(t))
	later := start(t, []string{"MAINSTAY_SERVER=" + url}, "task", "submit", "--cluster", c, "--id", "later", "--patience",
		patience.String(), "--", "sh", "-c", `echo begun >> "$0/later"`, dir)
	later.says(t, "Trying again for up to "+patience.String())
	servedAt(t, start(t, env, args...))
	require.Equal(t, 0, later.exit(t), "%s", &later.stderr)
	require.NoError(t, touch(dir+"/go"))
	done := completed(t, url, id, patience)
	require.Len(t, done.Attempts, 1, "%+v", done.Attempts)
	require.Len(t, lines(dir+"/ledger"), 1, "it ran again")
	completed(t, url, "later", patience)
	require.Len(t, lines(dir+"/later"), 1)
}

// TestInsecureServeLeavesSecuredInstallationsAlone makes a token in the Temporal of a secured `dev`, which nobody may
// then open to everybody, not even with Temporal's key.
func TestInsecureServeLeavesSecuredInstallationsAlone(t *testing.T) {
	t.Parallel()
	const admin = "an-admin-token-of-tests-has-no-blanks"
	_, report := startDevIn(t, []string{"MAINSTAY_ADMIN_TOKEN=" + admin}, t.TempDir(), "127.0.0.1:0", "--agents", "0")
	made := start(t, []string{"MAINSTAY_TOKEN=" + admin, "MAINSTAY_SERVER=" + report.URL}, "token", "create", "ci",
		"--role", "viewer")
	require.Equal(t, 0, made.exit(t), "%s", &made.stderr)
	key, err := os.ReadFile(report.KeyFile)
	require.NoError(t, err)
	env := []string{"TEMPORAL_ADDRESS=" + report.Temporal, "TEMPORAL_TLS=false", "TEMPORAL_API_KEY=" +
		strings.TrimSpace(string(key))}
	fails(t, env, 2, []string{"--insecure would open an installation to everybody that has tokens (1 in the namespace"},
		"serve", "--insecure", "--roles", "gateway", "--http", "127.0.0.1:0")
}

func TestServeRefusesToStart(t *testing.T) {
	t.Parallel()
	server, err := temporal()
	require.NoError(t, err)
	const admin = "MAINSTAY_ADMIN_TOKEN=an admin token of tests has no blanks"
	word := strings.ReplaceAll(admin, " ", "-")
	nowhere, here, busy := "TEMPORAL_ADDRESS="+freeAddress(t), "TEMPORAL_ADDRESS="+server.Address(), busyAddress(t)
	for name, c := range map[string]struct {
		env   []string
		args  []string
		code  int
		texts []string
	}{
		"no Temporal": {[]string{nowhere, tokenKey, word}, nil, 4,
			[]string{"cannot reach Temporal at 127.0.0.1:", "TEMPORAL_ADDRESS"}},
		"no namespace": {[]string{here, tokenKey, word, "TEMPORAL_NAMESPACE=none"}, nil, 1,
			[]string{`has no namespace "none"`, "temporal operator namespace create"}},
		"no key": {[]string{here}, nil, 2, []string{"hubs and gateways need a secret key", "openssl rand -hex 32",
			"MAINSTAY_TOKEN_KEY"}},
		"a gateway's key": {[]string{here, word}, []string{"--roles", "gateway"}, 2,
			[]string{"hubs and gateways need a secret key"}},
		"short key": {[]string{here, "MAINSTAY_TOKEN_KEY=hunter2"}, nil, 2,
			[]string{"the key in MAINSTAY_TOKEN_KEY has 7 characters, at least 32 are needed"}},
		"busy address": {[]string{here, tokenKey}, []string{"--http", busy}, 1,
			[]string{"the REST API cannot listen on " + busy}},
		"no admin": {[]string{here, tokenKey}, nil, 2, []string{"MAINSTAY_ADMIN_TOKEN=$(openssl rand -hex 32)",
			"--insecure"}},
		"blanks": {[]string{here, tokenKey, admin}, nil, 2, []string{"must be one word"}},
		"short token": {[]string{here, tokenKey, "MAINSTAY_ADMIN_TOKEN=admin"}, nil, 2,
			[]string{"has 5 characters, at least 32"}},
		"one for both": {[]string{here, tokenKey, word, strings.Replace(word, "ADMIN", "JOIN", 1)}, nil, 2,
			[]string{"agents would be admins"}},
		"open to all": {[]string{here, tokenKey}, []string{"--insecure", "--http", "0.0.0.0:0"}, 2,
			[]string{"--insecure is for this machine alone"}},
		"both ways": {[]string{here, tokenKey}, []string{"--insecure", "--tls-cert", "/no/such", "--tls-key",
			"/no/such"}, 2, []string{"leave out the one or the others"}},
		"no such cert": {[]string{here, tokenKey, word}, []string{"--tls-cert", "/no/such", "--tls-key", "/no/such"}, 2,
			[]string{"/no/such"}},
		"half of TLS": {[]string{here, tokenKey, word}, []string{"--tls-cert", "/no/such"}, 2, []string{"tls_key"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fails(t, c.env, c.code, c.texts, append([]string{"serve", "--http", "127.0.0.1:0"}, c.args...)...)
		})
	}
}
