package process

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mainstay.dev/mainstay/testsuite/slow"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/devserver"
	"mainstay.dev/mainstay/devserver/onpostgres"
	"mainstay.dev/mainstay/fleet"
)

// postgres starts a PostgreSQL of its own that ends with the test, and returns its host:port. Its user is mainstay.
func postgres(t *testing.T) string {
	t.Helper()
	programs := map[string]string{}
	for _, name := range []string{"initdb", "postgres"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("%s is not in the PATH: install PostgreSQL's server (Debian: postgresql, whose programs are in /usr/lib/postgresql/*/bin) to run this test", name)
		}
		programs[name] = path
	}
	dir, err := os.MkdirTemp("", "mainstay-pg-") //nolint:usetesting // PostgreSQL's own user must be able to enter it
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	as := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		nobody, err := user.Lookup("postgres")
		if err != nil {
			t.Skip("there is no user postgres, and PostgreSQL does not run as root")
		}
		uid, _ := strconv.ParseUint(nobody.Uid, 10, 32)
		gid, _ := strconv.ParseUint(nobody.Gid, 10, 32)
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		require.NoError(t, os.Chown(dir, int(uid), int(gid)))
	}
	data, address := filepath.Join(dir, "data"), freeAddress(t)
	initdb := exec.Command(programs["initdb"], "-D", data, "-U", "mainstay", "-A", "trust", "-E", "UTF8", "--no-locale",
		"--no-sync")
	initdb.SysProcAttr, initdb.Dir = as, dir
	text, err := initdb.CombinedOutput()
	require.NoError(t, err, "%s", text)
	_, port, _ := strings.Cut(address, ":")
	server := exec.Command(programs["postgres"], "-D", data, "-p", port, "-c", "listen_addresses=127.0.0.1", "-c",
		"unix_socket_directories="+dir,
		"-c", "fsync=off", "-c", "max_connections=100")
	var said output
	server.SysProcAttr, server.Dir, server.Stdout, server.Stderr = as, dir, &said, &said
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // at once: nothing is kept
		_ = server.Wait()
		if t.Failed() {
			t.Logf("PostgreSQL said:\n%s", said.String())
		}
	})
	require.Eventually(t, func() bool { return strings.Contains(said.String(), "ready to accept connections") },
		patience, 20*time.Millisecond, "%s", &said)
	return address
}

// TestInstallationOnPostgres runs what is run in production, as processes: Temporal on PostgreSQL, two hubs, two
// gateways, a worker and agents. One hub and one gateway are killed while 200 tasks are under way: each is done, and
// done once.
func TestInstallationOnPostgres(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	store, err := onpostgres.Open(postgres(t), "mainstay")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	temporal, err := devserver.Start(ctx, devserver.Options{Store: store})
	require.NoError(t, err)
	t.Cleanup(temporal.Stop)

	env := []string{"TEMPORAL_ADDRESS=" + temporal.Address(), tokenKey}
	part := func(args ...string) (*program, string) {
		p := start(t, env, append([]string{"serve", "--insecure", "--http", "127.0.0.1:0", "--log-format", "json"},
			args...)...)
		return p, servedAt(t, p)
	}
	part("--roles", "worker")
	gatewayA, urlA := part("--roles", "gateway")
	_, urlB := part("--roles", "gateway")
	hubA, hubURLA := part("--roles", "hub", "--hub-id", "pg-a")
	_, hubURLB := part("--roles", "hub", "--hub-id", "pg-b")
	c := cluster(t, urlA, "pg")
	var agents []*program
	for i := range 4 {
		hubs := hubURLA + "," + hubURLB
		if i%2 == 1 {
			hubs = hubURLB + "," + hubURLA
		}
		agents = append(agents, runAgent(t, hubs, c, fmt.Sprintf("pg-%d", i), "--slots", "4"))
	}
	for i := range agents {
		online(t, urlB, fmt.Sprintf("pg-%d", i))
	}

	const tasks = 200
	ledger := filepath.Join(t.TempDir(), "ledger")
	batches := [][]map[string]any{nil, nil}
	for i := range tasks {
		spec := execTask(c, fmt.Sprintf(`sleep 0.3; echo task-%03d >> "$0"`, i), ledger)
		batches[i%2] = append(batches[i%2], spec)
	}
	var ids []string
	for i, url := range []string{urlA, urlB} {
		var answer struct{ Tasks []task }
		call(t, http.StatusAccepted, http.MethodPost, url+"/api/v1/agents/tasks/batch", batches[i], &answer)
		for _, submitted := range answer.Tasks {
			ids = append(ids, submitted.ID)
		}
	}
	require.Len(t, ids, tasks)
	require.Eventually(t, func() bool { return len(lines(ledger)) >= tasks/8 }, patience, tick)
	hubA.signal(t, syscall.SIGKILL)
	gatewayA.signal(t, syscall.SIGKILL)
	require.Equal(t, -1, hubA.exit(t))
	require.Equal(t, -1, gatewayA.exit(t))
	t.Logf("a hub and a gateway were killed after %d of %d tasks", len(lines(ledger)), tasks)

	began := time.Now()
	for _, id := range ids {
		completed(t, urlB, id, 3*time.Minute) // a task on its way through the killed hub waits for its backstop
	}
	t.Logf("the rest took %s", time.Since(began).Round(100*time.Millisecond))
	ran := lines(ledger)
	slices.Sort(ran)
	require.Len(t, slices.Compact(slices.Clone(ran)), tasks, "some never ran")
	require.Len(t, ran, tasks, "some ran twice: %v", ran)

	var health struct {
		Status                 string
		MetadataStoreConnected bool `json:"metadata_store_connected"`
		Agents                 int
	}
	call(t, http.StatusOK, http.MethodGet, hubURLB+"/health", nil, &health)
	require.Equal(t, "healthy", health.Status)
	require.Equal(t, len(agents), health.Agents, "all are with the hub that is left")
	var cluster struct{ Status fleet.ClusterStatus }
	call(t, http.StatusOK, http.MethodGet, urlB+"/api/v1/agents/clusters/"+c, nil, &cluster)
	require.Equal(t, fleet.ClusterHealthy, cluster.Status)
	for _, a := range agents {
		a.signal(t, syscall.SIGTERM)
		require.Equal(t, 0, a.exit(t), "%s", &a.stderr)
	}
}
