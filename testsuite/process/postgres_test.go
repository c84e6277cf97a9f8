package process

import (
	"bytes"
	"context"
	"encoding/json"
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

	"mainstay.dev/mainstay/testsuite/build"
	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/api"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/devserver"
	"mainstay.dev/mainstay/internal/devserver/onpostgres"
)

// database is a PostgreSQL of a test's own. Its user is mainstay.
type database struct {
	dir, programs, address string
	as                     *syscall.SysProcAttr
	server                 *exec.Cmd
	said                   build.Output
}

// newDatabase has no data yet and does not run.
func newDatabase(t *testing.T) *database {
	t.Helper()
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		t.Skip("initdb is not in the PATH: install PostgreSQL's server (Debian: postgresql, whose programs are in /usr/lib/postgresql/*/bin) to run this test")
	}
	initdb, err = filepath.EvalSymlinks(initdb)
	require.NoError(t, err)
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
	return &database{dir: dir, programs: filepath.Dir(initdb), address: freeAddress(t), as: as}
}

// command is one of PostgreSQL's programs, for the data of this database.
func (d *database) command(program string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(d.programs, program), append(args, "-D", filepath.Join(d.dir, "data"))...)
	c.SysProcAttr, c.Dir = d.as, d.dir
	return c
}

// run runs such a program to its end.
func (d *database) run(t *testing.T, program string, args ...string) {
	t.Helper()
	text, err := d.command(program, args...).CombinedOutput()
	require.NoError(t, err, "%s", text)
}

// start runs the server until the test ends.
func (d *database) start(t *testing.T, settings ...string) {
	t.Helper()
	_, port, _ := strings.Cut(d.address, ":")
	d.server = d.command("postgres", "-p", port)
	for _, setting := range append([]string{"listen_addresses=127.0.0.1", "unix_socket_directories=" + d.dir, "fsync=off",
		"max_connections=100", "dynamic_shared_memory_type=mmap"}, settings...) {
		d.server.Args = append(d.server.Args, "-c", setting)
	}
	d.server.Stdout, d.server.Stderr = &d.said, &d.said
	require.NoError(t, d.server.Start())
	t.Cleanup(func() {
		d.stop(syscall.SIGQUIT) // at once: nothing is kept
		if t.Failed() {
			t.Logf("PostgreSQL said:\n%s", d.said.String())
		}
	})
	require.Eventually(t, func() bool { return strings.Contains(d.said.String(), "ready to accept ") }, patience,
		20*time.Millisecond, "%s", &d.said)
}

// stop sends the server's first process a signal, and waits until it has ended. Killed, it leaves shared memory, which a
// new server in the same directory refuses to start with while others of the old one use it.
func (d *database) stop(s syscall.Signal) {
	_ = d.server.Process.Signal(s)
	_ = d.server.Wait()
	left, _ := os.ReadFile(filepath.Join(d.dir, "data", "postmaster.pid")) // only SIGKILL leaves it
	if lines := strings.Split(string(left), "\n"); len(lines) > 6 {
		if memory := strings.Fields(lines[6]); len(memory) == 2 {
			_ = exec.Command("ipcrm", "-m", memory[1]).Run()
		}
	}
}

func initialized(t *testing.T) *database {
	t.Helper()
	d := newDatabase(t)
	d.run(t, "initdb", "-U", "mainstay", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	return d
}

// temporalOn starts a Temporal that keeps its data in the PostgreSQL at these addresses.
func temporalOn(t *testing.T, addresses string) *devserver.Server {
	t.Helper()
	store, err := onpostgres.Open(addresses, "mainstay")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server, err := devserver.Start(ctx, devserver.Options{Store: store})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	return server
}

// TestInstallationOnPostgres runs what is run in production, as processes: Temporal on PostgreSQL, two hubs, two
// gateways, a worker and agents. One hub and one gateway are killed while 200 tasks are under way: each is done, and
// done once.
func TestInstallationOnPostgres(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	db := initialized(t)
	db.start(t)
	temporal := temporalOn(t, db.address)

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
	c := clusterNamed(t, urlA, "pg")
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
		spec["idempotency_key"] = fmt.Sprintf("pg-%03d", i)
		batches[i%2] = append(batches[i%2], spec)
	}
	var ids []string
	for i, url := range []string{urlA, urlB} {
		var answer struct{ Tasks []task }
		require.Eventually(t, func() bool { // a slow database takes some of them only when they are sent again
			answer.Tasks = nil
			call(t, http.StatusAccepted, http.MethodPost, url+"/api/v1/agents/tasks/batch", batches[i], &answer)
			return !slices.ContainsFunc(answer.Tasks, func(s task) bool { return s.ID == "" })
		}, patience, tick)
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
	var cluster struct{ Status api.ClusterStatus }
	call(t, http.StatusOK, http.MethodGet, urlB+"/api/v1/agents/clusters/"+c, nil, &cluster)
	require.Equal(t, api.ClusterHealthy, cluster.Status)
	for _, a := range agents {
		a.signal(t, syscall.SIGTERM)
		require.Equal(t, 0, a.exit(t), "%s", &a.stderr)
	}
}

// TestDatabaseFailover loses the primary of a replicated PostgreSQL under Temporal: it is killed while tasks are under
// way and being submitted, and its standby is promoted. Each acknowledged task is done, and done once.
func TestDatabaseFailover(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	primary, standby := initialized(t), newDatabase(t)
	primary.start(t, "fsync=on", "synchronous_standby_names=*") // a commit is answered once the standby has it on its disk
	host, port, _ := strings.Cut(primary.address, ":")
	standby.run(t, "pg_basebackup", "-h", host, "-p", port, "-U", "mainstay", "-R", "-c", "fast", "--no-sync")
	standby.start(t, "fsync=on")
	temporal := temporalOn(t, primary.address+","+standby.address)

	p := start(t, []string{"TEMPORAL_ADDRESS=" + temporal.Address(), tokenKey}, "serve", "--insecure", "--http",
		"127.0.0.1:0", "--log-format", "json")
	url := servedAt(t, p)
	c := clusterNamed(t, url, "replicated")
	for _, id := range []string{"replicated-0", "replicated-1"} {
		runAgent(t, url, c, id, "--slots", "4")
		online(t, url, id)
	}

	const tasks = 80
	ledger := filepath.Join(t.TempDir(), "ledger")
	var ids []string
	for i := range tasks {
		if i == tasks/2 {
			require.Eventually(t, func() bool { return len(lines(ledger)) >= tasks/8 }, patience, tick)
			primary.stop(syscall.SIGKILL)
			t.Logf("the primary was killed after %d of %d tasks", len(lines(ledger)), tasks)
			standby.run(t, "pg_ctl", "promote")
		}
		spec := execTask(c, fmt.Sprintf(`sleep 0.5; echo task-%03d >> "$0"`, i), ledger)
		spec["idempotency_key"] = fmt.Sprintf("replicated-%d", i)
		body, err := json.Marshal(spec)
		require.NoError(t, err)
		var submitted task
		require.Eventually(t, func() bool { // until it is acknowledged
			response, err := http.Post(url+"/api/v1/agents/tasks", "application/json", bytes.NewReader(body))
			if err != nil {
				return false
			}
			defer func() { _ = response.Body.Close() }()
			return response.StatusCode/100 == 2 && json.NewDecoder(response.Body).Decode(&submitted) == nil
		}, patience, 10*tick)
		ids = append(ids, submitted.ID)
	}
	t.Logf("all tasks are acknowledged, %d of them are done", len(lines(ledger)))
	for _, id := range ids {
		completed(t, url, id, patience)
	}
	ran := lines(ledger)
	slices.Sort(ran)
	require.Len(t, slices.Compact(slices.Clone(ran)), tasks, "some never ran")
	require.Len(t, ran, tasks, "some ran twice: %v", ran)
}
