//go:build linux

package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/build"
	"mainstay.dev/mainstay/testsuite/freeport"
)

// process is one process that the driver started.
type process struct {
	name string
	cmd  *exec.Cmd
	pid  int
	gone chan struct{}
	log  *os.File

	mu       sync.Mutex
	killedAt int64 // when SIGKILL was sent; 0: never
	goneAt   int64 // when SIGKILL was sent, or when its end was seen
	code     int
	frozen   []span // SIGSTOP to SIGCONT; to is 0 while stopped
}

// span is a time in nanoseconds of the monotonic clock.
type span struct{ from, to int64 }

// starting starts processes from one thread that lives as long as the driver: the kernel kills them when it ends, so a
// driver that dies leaves nothing behind.
var starting = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range work {
			do()
		}
	}()
	return work
})

// startProcess starts a program, in the network namespace of the driver or (space) in another.
func startProcess(
	t testing.TB, name, dir string, env []string, space *namespace, program string, args ...string,
) *process {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	p := &process{name: name, cmd: exec.Command(program, args...), gone: make(chan struct{}), log: log}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	starting() <- func() { started <- startIn(space, p.cmd) }
	require.NoError(t, <-started, "start %s", name)
	p.pid = p.cmd.Process.Pid
	go func() {
		_ = p.cmd.Wait()
		p.mu.Lock()
		p.code = p.cmd.ProcessState.ExitCode()
		if p.goneAt == 0 {
			p.goneAt = monotonic()
		}
		p.mu.Unlock()
		close(p.gone)
	}()
	t.Cleanup(func() {
		p.kill()
		_ = log.Close()
	})
	return p
}

// startIn starts a command in a network namespace (nil: the driver's own) from the calling thread.
func startIn(space *namespace, cmd *exec.Cmd) error {
	if space == nil {
		return cmd.Start()
	}
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer func() { _ = home.Close() }()
	if err := space.enter(); err != nil {
		return err
	}
	return errors.Join(cmd.Start(), (&namespace{home}).enter())
}

func (p *process) alive() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// kill sends SIGKILL and waits for the end. The process does nothing more once the signal is sent, however late this
// driver sees its end.
func (p *process) kill() {
	p.mu.Lock()
	first := p.killedAt == 0 && p.alive()
	if first {
		p.killedAt = monotonic()
	}
	_ = p.cmd.Process.Kill()
	if first && p.goneAt == 0 {
		p.goneAt = monotonic()
	}
	p.mu.Unlock()
	<-p.gone
}

// freeze sends SIGSTOP, thaw SIGCONT.
func (p *process) freeze() {
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = append(p.frozen, span{from: monotonic()})
}

func (p *process) thaw() {
	p.mu.Lock()
	p.frozen[len(p.frozen)-1].to = monotonic()
	p.mu.Unlock()
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
}

// programs are built once for all tests of the run.
var programs sync.Map // what → func() (string, error)

// buildProgram builds the program of this repository, or with testBinary this package's tests; both can have planted
// bugs.
func buildProgram(t testing.TB, planted, testBinary bool) string {
	t.Helper()
	built := sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp(buildDir, "build-") //nolint:usetesting // outlives the test: later ones use the program too
		if err != nil {
			return "", err
		}
		if !planted && !testBinary {
			return build.Program(dir)
		}
		var flags []string
		if planted {
			overlay, err := writeOverlay(dir)
			if err != nil {
				return "", err
			}
			flags = []string{"-overlay", overlay}
		}
		if !testBinary {
			return filepath.Join(dir, "mainstay"), build.Programs(dir, flags...)
		}
		out := filepath.Join(dir, "program")
		return out, build.Go(slices.Concat([]string{"test", "-c", "-o", out}, flags,
			[]string{"mainstay.dev/mainstay/testsuite/chaos"})...)
	})
	once, _ := programs.LoadOrStore(fmt.Sprint(planted, testBinary), built)
	path, err := once.(func() (string, error))()
	require.NoError(t, err)
	return path
}

// plane is one process of the control plane, which keeps its ports and its data over restarts.
type plane struct {
	url     string
	start   func() *process
	mu      sync.Mutex
	process *process
}

func (p *plane) current() *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process
}

func (p *plane) up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil || !p.process.alive() {
		p.process = p.start()
	}
}

func (p *plane) ready() bool {
	response, err := (&http.Client{Timeout: time.Second}).Get(p.url + "/readyz")
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// timing are the thresholds of an installation. The quick ones keep the proportions of the defaults.
type timing struct {
	Heartbeat, Warning, Failure, Grace, RoleLease time.Duration
}

var (
	quickTiming = timing{1250 * time.Millisecond, 2500 * time.Millisecond, 3750 * time.Millisecond,
		250 * time.Millisecond, 2 * time.Second}
	defaultTiming = timing{5 * time.Second, 10 * time.Second, 15 * time.Second, time.Second, 5 * time.Second}
)

// installation is a control plane of two processes: the first has Temporal, and both have a hub, a gateway and a
// worker.
type installation struct {
	dir    string
	timing timing
	planes []*plane
	agents []*member
	book   *ledger
	client *http.Client
	net    *network // nil: the agents are on loopback, behind their wires only

	temporal string // its address
	healing  bool   // clusters are made with the quick policy

	programAgent string
	agentEnv     []string

	mu        sync.Mutex
	processes map[int][]*process // agents' processes by pid, the earliest first
}

// options of an installation.
type installOptions struct {
	timing  timing
	planted bool     // every program has planted bugs; see plantedBugs
	env     []string // of every process
	hubs    int      // 1 or 2; 0 means 2
	net     *network // that the agents are in; nil: loopback
	secured bool     // its security is on
}

func install(t testing.TB, o installOptions) *installation {
	t.Helper()
	in := &installation{dir: t.TempDir(), timing: o.timing, client: &http.Client{Timeout: 8 * time.Second}, net: o.net,
		processes: map[int][]*process{}, agentEnv: o.env}
	if o.secured {
		in.client.Transport = bearer{adminToken}
		in.agentEnv = append(slices.Clone(o.env), "MAINSTAY_JOIN_TOKEN="+joinToken)
		o.env = append(slices.Clone(in.agentEnv), "MAINSTAY_ADMIN_TOKEN="+adminToken)
	}
	in.book = &ledger{path: filepath.Join(in.dir, "ledger")}
	program := buildProgram(t, o.planted, false)
	var err error
	in.programAgent, err = os.Executable()
	require.NoError(t, err)
	if o.planted {
		in.programAgent = buildProgram(t, o.planted, true)
	}
	settings := filepath.Join(in.dir, "mainstay.yaml")
	require.NoError(t, os.WriteFile(settings, fmt.Appendf(nil,
		"hub:\n  heartbeat_interval: %s\n  warning_threshold: %s\n  failure_threshold: %s\n  disconnect_grace: %s\n",
		o.timing.Heartbeat, o.timing.Warning, o.timing.Failure, o.timing.Grace), 0o600))
	temporal, first, second := freeAddress(t), freeAddress(t), freeAddress(t)
	in.temporal = temporal
	env := append([]string{"MAINSTAY_TOKEN_KEY=a key for chaos tests, not for people!", "TEMPORAL_ADDRESS=" + temporal},
		o.env...)
	add := func(name, address string, args ...string) {
		in.planes = append(in.planes, &plane{url: "http://" + address, start: func() *process {
			return startProcess(t, name, in.dir, env, nil, program,
				append(args, "--http", address, "--config", settings)...)
		}})
	}
	add("dev", first, "dev", "--data-dir", filepath.Join(in.dir, "data"), "--agents", "0", "--ui", "off", "--temporal",
		temporal)
	in.planes[0].up()
	in.awaitReady(t, 0)
	if o.hubs != 1 {
		add("serve", second, "serve", "--insecure", "--hub-id", "second")
		in.planes[1].up()
		in.awaitReady(t, 1)
	}
	return in
}

func (in *installation) awaitReady(t testing.TB, i int) {
	t.Helper()
	require.Eventually(t, in.planes[i].ready, 60*time.Second, 50*time.Millisecond,
		"%s does not come up; see its log in %s", in.planes[i].url, in.dir)
}

func freeAddress(t testing.TB) string {
	address, err := freeport.Address()
	require.NoError(t, err)
	return address
}

// member is one agent, over the processes that play it.
type member struct {
	in      *installation
	id      string
	cluster string
	slots   int
	wire    *wire
	site    *site // nil on loopback

	mu      sync.Mutex
	process *process
	busy    bool // a fault is at work
}

// addAgent makes an agent and starts its process.
func (in *installation) addAgent(t testing.TB, cluster, id string, slots int) *member {
	var targets []string
	for i := range in.planes {
		targets = append(targets, in.planes[(i+len(in.agents))%len(in.planes)].url)
	}
	m := &member{in: in, id: id, cluster: cluster, slots: slots}
	var listener net.Listener
	var err error
	if in.net == nil {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	} else if m.site, err = in.net.newSite(t); err == nil {
		listener, err = in.net.listen()
	}
	require.NoError(t, err)
	m.wire = newWire(t, targets, slots, listener)
	in.agents = append(in.agents, m)
	m.up(t)
	return m
}

// up starts a process for the agent, whether one runs already or not, and returns the one before.
func (m *member) up(t testing.TB) *process {
	spec, err := json.Marshal(agentSpec{ID: m.id, Cluster: m.cluster, Hubs: m.wire.urls(), Ledger: m.in.book.path,
		Slots: m.slots})
	require.NoError(t, err)
	var space *namespace
	if m.site != nil {
		space = m.site.space
	}
	p := startProcess(t, m.id, m.in.dir, append([]string{agentEnv + "=" + string(spec)}, m.in.agentEnv...), space,
		m.in.programAgent, "-test.run=^$")
	m.in.mu.Lock()
	m.in.processes[p.pid] = append(m.in.processes[p.pid], p)
	m.in.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.process
	m.process = p
	return before
}

func (m *member) current() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}

// call sends one request to a process of the control plane and decodes the answer.
func (in *installation) call(i int, method, path string, body, into any) (int, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	request, err := http.NewRequest(method, in.planes[i%len(in.planes)].url+path, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := in.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	if into != nil && response.StatusCode < 300 {
		return response.StatusCode, json.NewDecoder(response.Body).Decode(into)
	}
	return response.StatusCode, nil
}

// addCluster makes a cluster.
func (in *installation) addCluster(t testing.TB, name, mode string) {
	t.Helper()
	settings := map[string]any{"name": name, "replication_mode": mode, "role_lease": in.timing.RoleLease.String()}
	if mode == "sharded" {
		settings["shards"] = 4
	}
	if in.healing {
		settings["self_healing"] = healingPolicy()
	}
	require.Eventually(t, func() bool {
		status, err := in.call(0, http.MethodPost, "/api/v1/agents/clusters", settings, nil)
		return err == nil && (status < 300 || status == http.StatusConflict)
	}, 20*time.Second, 100*time.Millisecond, "cluster %s", name)
}

// keep copies ledger and logs to where they outlive the test, and writes what the oracle of healing saw beside them.
func keep(t testing.TB, in *installation, e evidence) {
	to, err := os.MkdirTemp("", "chaos-kept-") //nolint:usetesting // is meant to outlive the test
	if err == nil {
		err = errors.Join(os.CopyFS(to, os.DirFS(in.dir)), os.WriteFile(filepath.Join(to, "healing.txt"),
			e.healingStory(), 0o600))
	}
	t.Logf("ledger and logs are in %s (error: %v)", to, err)
}
