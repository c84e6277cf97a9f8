package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	sdkclient "go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.uber.org/zap/zapcore"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/controlplane"
	"mainstay.dev/mainstay/internal/controlplane/dev"
	"mainstay.dev/mainstay/internal/devserver"
	"mainstay.dev/mainstay/testsuite/freeport"
	"mainstay.dev/sdk/client"
)

const (
	startLimit = 60 * time.Second
	stopLimit  = 20 * time.Second
)

// Installation is a control plane with an embedded Temporal in a process of its own (`mainstay dev --agents 0`), and
// agents in theirs.
type Installation struct {
	Setting
	*client.Client                  // of the REST API; nil while there is none
	sdk            sdkclient.Client // of the embedded Temporal
	// url of the API and address of Temporal stay the same over restarts.
	url, temporal, namespace string

	dir    string    // for data and logs
	story  io.Writer // takes progress
	args   []string
	plane  *Process // embedded Temporal, and all but agents unless temporalOnly
	hub    *Process // the hub of its own, or hub, gateway and worker; nil: the control plane's are used
	hubURL string
	// hubHost is the address that a hub of its own listens on; empty: only this machine reaches it.
	hubHost string

	mu    sync.Mutex
	procs []*Process // agents and helpers
	stops []func()   // end what runs in this process
}

// Setting is how to start an Installation.
type Setting struct {
	programs
	memory     bool   // keep Temporal's data in memory
	durability string // none, process or power; empty: the default
	admin      string // token of an admin, with which security is on and Temporal needs a key; empty: off
	cpuProfile string // file for a CPU profile of the control plane; empty: none
	// temporalOnly starts nothing but the embedded Temporal; roles are parts of the control plane in another process.
	temporalOnly bool
	roles        string
	stock        bool // Temporal only, on the database as Temporal ships it
}

// storage is where Temporal keeps its data, in a word.
func (s *Setting) storage() string {
	if s.memory {
		return "memory"
	}
	return s.durability
}

// install starts a control plane on free ports, in a folder of its own. The caller stops it.
func (r *run) install(ctx context.Context, s Setting) (*Installation, error) {
	s.programs = r.programs
	i := &Installation{Setting: s, story: r.story,
		args: []string{s.mainstay, "dev", "--agents", "0", "--ui", "off", "-o", "json"}}
	if s.temporalOnly {
		i.args = []string{s.self, "temporal", fmt.Sprintf("--stock=%t", s.stock)}
	}
	var err error
	if i.dir, err = os.MkdirTemp(r.dir, "installation-"); err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	if s.memory {
		i.args = append(i.args, "--ephemeral")
	} else {
		i.args = append(i.args, "--data-dir", filepath.Join(i.dir, "data"))
	}
	if s.durability != "" {
		i.args = append(i.args, "--durability", s.durability)
	}
	if s.cpuProfile != "" {
		i.args = append(i.args, "--cpu-profile", s.cpuProfile)
	}
	force := i.Stop
	r.AtForce.Store(&force)
	if err := i.up(ctx); err != nil {
		i.Stop()
		return nil, err
	}
	return i, nil
}

// up starts all that the setting says.
func (i *Installation) up(ctx context.Context) (err error) {
	if err := i.start(ctx, "127.0.0.1:0", "127.0.0.1:0"); err != nil {
		return err
	}
	if i.admin == "" {
		if i.sdk, err = sdkclient.DialContext(ctx, sdkclient.Options{HostPort: i.temporal, Namespace: i.namespace,
			Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))}); err != nil {
			return fmt.Errorf("connect to Temporal: %w", err)
		}
		i.atStop(i.sdk.Close)
	}
	if i.roles == "" {
		return nil
	}
	return i.startServe(ctx, i.roles)
}

// start runs the control plane and waits until it says that all is up.
func (i *Installation) start(ctx context.Context, listen, temporal string) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	args := append(slices.Clone(i.args), "--temporal", temporal)
	if !i.temporalOnly {
		args = append(args, "--http", listen)
	}
	var env []string
	if i.admin != "" {
		env = []string{"MAINSTAY_ADMIN_TOKEN=" + i.admin}
	}
	i.plane, err = i.launch("control-plane", env, write, args)
	_ = write.Close()
	if err != nil {
		return err
	}
	unwatch := context.AfterFunc(ctx, i.plane.Kill)
	defer unwatch()
	late := time.AfterFunc(startLimit, i.plane.Kill)
	defer late.Stop()
	var report struct {
		URL       string `json:"url"`
		Temporal  string `json:"temporal_address"`
		Namespace string `json:"namespace"`
	}
	if err := json.NewDecoder(read).Decode(&report); err != nil {
		i.plane.Kill()
		return errors.Join(ctx.Err(), fmt.Errorf("the control plane did not start; it said:\n%s",
			i.said("control-plane")))
	}
	i.temporal, i.namespace = report.Temporal, report.Namespace
	if i.temporalOnly {
		return nil
	}
	return i.useAPI(report.URL)
}

// useAPI calls the API at url from now on.
func (i *Installation) useAPI(url string) (err error) {
	i.url = url
	i.Client, err = newClient(url, i.admin)
	return err
}

// newClient does not repeat requests, for that would hide failures from the measurement.
func newClient(url, token string) (*client.Client, error) {
	return client.New(client.Options{URL: url, Token: token, Patience: -1, HTTPClient: newHTTPClient()})
}

// newHTTPClient keeps its connections.
func newHTTPClient() *http.Client {
	transport := client.NewTransport()
	transport.MaxIdleConnsPerHost = 1000 // as many as a benchmark has clients at the most
	return &http.Client{Transport: transport}
}

// said is the end of what a process has written to its standard error.
func (i *Installation) said(name string) string {
	data, err := os.ReadFile(filepath.Join(i.dir, name+".err"))
	if err != nil {
		return err.Error()
	}
	if limit := 2000; len(data) > limit {
		data = data[len(data)-limit:]
	}
	return strings.TrimSpace(string(data))
}

// comeBack kills the control plane with its embedded Temporal, waits, and starts it again on its data and addresses.
func (i *Installation) comeBack(ctx context.Context, d time.Duration) error {
	i.plane.end()
	if err := pause(ctx, d); err != nil {
		return err
	}
	return i.start(ctx, strings.TrimPrefix(i.url, "http://"), i.temporal)
}

// Start runs a process of the benchmarks, by its command and arguments; its standard error is kept under the name.
func (i *Installation) Start(name string, args ...string) (*Process, error) {
	return i.startLine(name, append([]string{i.self}, args...))
}

// startLine runs a whole command line.
func (i *Installation) startLine(name string, line []string) (*Process, error) {
	p, err := i.launch(name, nil, nil, line)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.procs = append(i.procs, p)
	return p, nil
}

func (i *Installation) launch(name string, env []string, stdout io.Writer, line []string) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(i.dir, name+".err"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(line[0], line[1:]...)
	command.Env = append(os.Environ(), env...)
	command.Stdout, command.Stderr = stdout, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C reaches only this process, which stops them
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{command: command, done: make(chan struct{})}
	go func() { _ = command.Wait(); close(p.done) }()
	return p, nil
}

// agentsURL is where agents of this installation go.
func (i *Installation) agentsURL() string { return cmp.Or(i.hubURL, i.url) }

// hubPID is the process of the hub.
func (i *Installation) hubPID() int {
	if i.hub != nil {
		return i.hub.PID()
	}
	return i.plane.PID()
}

// startServe runs parts of a control plane in a process of their own (`mainstay serve --roles …`), on the same
// address each time. Where nothing but Temporal was there before, its API is used from now on.
func (i *Installation) startServe(ctx context.Context, roles string) error {
	if i.hubURL == "" {
		address, err := freeport.Address()
		if err != nil {
			return err
		}
		i.hubURL = "http://" + strings.Replace(address, "127.0.0.1", cmp.Or(i.hubHost, "127.0.0.1"), 1)
	}
	var err error
	// One key for all hubs, so that agents can take their work from one to another. Where there is no other, the key
	// protects nothing: the hub is reachable from this machine only and lives for minutes.
	key := "a-key-for-benchmarks-that-protects-nothing"
	if data, err := os.ReadFile(filepath.Join(i.dir, "data", "token-key")); err == nil {
		key = strings.TrimSpace(string(data))
	}
	env := []string{"TEMPORAL_ADDRESS=" + i.temporal, "TEMPORAL_NAMESPACE=" + i.namespace, "MAINSTAY_TOKEN_KEY=" + key}
	args := []string{i.mainstay, "serve", "--roles", roles, "--http", strings.TrimPrefix(i.hubURL, "http://"),
		"--hub-id", "bench-hub", "--log-level", "warn"}
	if i.hubHost == "" {
		args = append(args, "--insecure")
	} else {
		env = append(env, "MAINSTAY_ADMIN_TOKEN="+cableToken, "MAINSTAY_JOIN_TOKEN="+cableToken+"-join")
	}
	if i.hub, err = i.launch("hub", env, nil, args); err != nil {
		return err
	}
	if err := i.awaitReady(ctx); err != nil || !i.temporalOnly {
		return err
	}
	return i.useAPI(i.hubURL)
}

// awaitReady returns when the process of the hub says that it is ready.
func (i *Installation) awaitReady(ctx context.Context) error {
	err := eventually(
		ctx,
		"the hub's readiness",
		startLimit,
		50*time.Millisecond,
		func(ctx context.Context) (bool, error) {
			select {
			case <-i.hub.done:
				return false, errors.New("the hub has ended")
			default:
			}
			answer, err := ask(ctx, i.hubURL+"/readyz")
			if err != nil {
				return false, nil //nolint:nilerr // not yet
			}
			return true, answer.Close()
		},
	)
	if err != nil {
		return fmt.Errorf("%w; it said:\n%s", err, i.said("hub"))
	}
	return nil
}

// ask sends a GET and returns the body of the answer, which must be 200.
func ask(ctx context.Context, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return response.Body, nil
}

// atStop makes a function run when the installation stops, the last added first.
func (i *Installation) atStop(end func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stops = append(i.stops, end)
}

// Stop ends what uses the control plane, and then the control plane, so that a CPU profile is written.
func (i *Installation) Stop() {
	i.mu.Lock()
	stops, procs := i.stops, i.procs
	i.stops, i.procs = nil, nil
	i.mu.Unlock()
	for _, p := range procs {
		p.Kill()
	}
	for _, p := range procs {
		<-p.done
	}
	for _, stop := range slices.Backward(stops) {
		stop()
	}
	if i.hub != nil {
		i.hub.end()
	}
	if i.plane == nil {
		return
	}
	if i.temporalOnly { // it has no profile to write
		i.plane.Kill()
	}
	i.plane.Signal(syscall.SIGTERM)
	late := time.AfterFunc(stopLimit, i.plane.Kill)
	defer late.Stop()
	<-i.plane.done
}

// Process is a process of an Installation.
type Process struct {
	command *exec.Cmd
	done    chan struct{} // closed when it has ended
}

// PID is the process's id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Signal sends a signal; to a process that has ended, nothing.
func (p *Process) Signal(s os.Signal) { _ = p.command.Process.Signal(s) }

// Kill sends SIGKILL, which reaches stopped processes too.
func (p *Process) Kill() { p.Signal(syscall.SIGKILL) }

// end kills a process and returns when it is gone.
func (p *Process) end() {
	p.Kill()
	<-p.done
}

// temporalCommand is the embedded Temporal in a process of its own, for benchmarks that measure the processes beside
// it. Its first line of output has its address.
func temporalCommand(a *app.App) *cobra.Command {
	var address, durability, dataDir string
	var memory, stock bool
	command := &cobra.Command{
		Use: "temporal", Hidden: true, Args: app.Exactly(),
		Example: "  mainstay-bench temporal --temporal 127.0.0.1:0 --ephemeral",
		Short:   "Run nothing but the embedded Temporal, for a benchmark",
		RunE: func(c *cobra.Command, _ []string) error {
			o := devserver.Options{DataDir: dataDir, Durability: devserver.Durability(durability), StockDatabase: stock,
				Logger: controlplane.NewLogger(a.Stderr, zapcore.WarnLevel, false)}
			if memory {
				o.DataDir = ""
			}
			var err error
			if o.Host, o.Port, err = dev.SplitIP("--temporal", address); err != nil {
				return err
			}
			starting, cancel := context.WithTimeout(c.Context(), controlplane.StartLimit)
			defer cancel()
			server, err := devserver.Start(starting, o)
			if err != nil {
				return err
			}
			defer dev.Within(dev.TemporalLimit, server.Stop)
			if err := json.NewEncoder(a.Stdout).Encode(map[string]string{"temporal_address": server.Address(),
				"namespace": server.Namespace()}); err != nil {
				return err
			}
			<-c.Context().Done()
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&address, "temporal", "127.0.0.1:0", "host:port of Temporal; port 0 takes a free one")
	flags.StringVar(&dataDir, "data-dir", "", "where its data is kept")
	flags.BoolVar(&memory, "ephemeral", false, "keep its data in memory")
	flags.StringVar(&durability, "durability", "", "as of `mainstay dev`")
	flags.BoolVar(&stock, "stock", false, "use the database as Temporal ships it")
	return command
}
