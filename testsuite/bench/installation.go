package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
)

const (
	startLimit = 60 * time.Second
	stopLimit  = 20 * time.Second
)

// Installation is a control plane with an embedded Temporal in a process of its own (`mainstay dev --agents 0`), and
// agents in theirs.
type Installation struct {
	// URL of the REST API and address of Temporal stay the same over restarts.
	URL, Temporal, Namespace, HubID string

	program string
	args    []string
	dir     string
	plane   *Process // embedded Temporal, and all but agents unless temporalOnly
	hub     *Process // the hub of its own, or hub, gateway and worker; nil: the control plane's are used
	hubURL  string

	temporalOnly bool

	mu    sync.Mutex
	procs []*Process // agents and helpers
}

// Setting is how to start an Installation.
type Setting struct {
	Program    string // the mainstay binary
	Dir        string // for data and logs
	Memory     bool   // keep Temporal's data in memory
	Durability string // none, process or power; empty: the default
	Config     string // text of a configuration file; empty: the defaults
	CPUProfile string // file for a CPU profile of the control plane; empty: none
	// TemporalOnly starts nothing but the embedded Temporal; StartServe adds hub, gateway and worker in a process.
	TemporalOnly bool
}

// Install starts a control plane on free ports.
func Install(ctx context.Context, s Setting) (*Installation, error) {
	i := &Installation{program: s.Program, dir: s.Dir, temporalOnly: s.TemporalOnly}
	i.args = []string{"dev", "--agents", "0", "--ui", "off", "-o", "json"}
	if s.TemporalOnly {
		i.args = []string{"bench", "temporal"}
	}
	if s.Memory {
		i.args = append(i.args, "--ephemeral")
	} else {
		i.args = append(i.args, "--data-dir", filepath.Join(s.Dir, "data"))
	}
	if s.Durability != "" {
		i.args = append(i.args, "--durability", s.Durability)
	}
	if s.CPUProfile != "" {
		i.args = append(i.args, "--cpu-profile", s.CPUProfile)
	}
	if s.Config != "" {
		file := filepath.Join(s.Dir, "mainstay.yaml")
		if err := os.WriteFile(file, []byte(s.Config), 0o600); err != nil {
			return nil, fmt.Errorf("write the configuration: %w", err)
		}
		i.args = append(i.args, "--config", file)
	}
	if err := i.start(ctx, "127.0.0.1:0", "127.0.0.1:0"); err != nil {
		i.Stop()
		return nil, err
	}
	return i, nil
}

// start runs the control plane and waits until it says that all is up.
func (i *Installation) start(ctx context.Context, listen, temporal string) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	args := append(append([]string{}, i.args...), "--temporal", temporal)
	if !i.temporalOnly {
		args = append(args, "--http", listen)
	}
	i.plane, err = i.launch("control-plane", nil, write, args)
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
		Hub       string `json:"hub"`
	}
	if err := json.NewDecoder(read).Decode(&report); err != nil {
		i.plane.Kill()
		return errors.Join(ctx.Err(), fmt.Errorf("the control plane did not start; it said:\n%s",
			i.said("control-plane")))
	}
	i.URL, i.Temporal, i.Namespace, i.HubID = report.URL, report.Temporal, report.Namespace, report.Hub
	return nil
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

// PID is the control plane's process.
func (i *Installation) PID() int { return i.plane.PID() }

// KillPlane ends the control plane, embedded Temporal included, with SIGKILL and returns when it is gone.
func (i *Installation) KillPlane() {
	i.plane.Kill()
	<-i.plane.Done()
}

// RestartPlane starts the control plane again on its data and addresses.
func (i *Installation) RestartPlane(ctx context.Context) error {
	return i.start(ctx, strings.TrimPrefix(i.URL, "http://"), i.Temporal)
}

// Dial opens a client of the embedded Temporal.
func (i *Installation) Dial(ctx context.Context) (client.Client, error) {
	c, err := client.DialContext(ctx, client.Options{HostPort: i.Temporal, Namespace: i.Namespace, Logger: silent{}})
	if err != nil {
		return nil, fmt.Errorf("connect to the embedded Temporal: %w", err)
	}
	return c, nil
}

// silent drops what the SDK says.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}

// Start runs the program with arguments; its standard error is kept under the name.
func (i *Installation) Start(name string, args ...string) (*Process, error) {
	p, err := i.launch(name, nil, nil, args)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.procs = append(i.procs, p)
	return p, nil
}

func (i *Installation) launch(name string, env []string, stdout io.Writer, args []string) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(i.dir, name+".err"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(i.program, args...)
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

// HubURL is where agents of this installation go.
func (i *Installation) HubURL() string {
	if i.hubURL != "" {
		return i.hubURL
	}
	return i.URL
}

// HubPID is the process of the hub.
func (i *Installation) HubPID() int {
	if i.hub != nil {
		return i.hub.PID()
	}
	return i.PID()
}

// StartHub runs a hub in a process of its own (`mainstay serve --roles hub`), on the same address each time.
func (i *Installation) StartHub(ctx context.Context) error { return i.startServe(ctx, "hub") }

// StartServe runs hub, gateway and worker in one process (`mainstay serve`), for an installation with TemporalOnly.
func (i *Installation) StartServe(ctx context.Context) error {
	err := i.startServe(ctx, "hub,gateway,worker")
	i.URL = i.hubURL
	return err
}

func (i *Installation) startServe(ctx context.Context, roles string) error {
	if i.hubURL == "" {
		listener, err := net.Listen("tcp", "127.0.0.1:0") // to find a free port
		if err != nil {
			return err
		}
		i.hubURL = "http://" + listener.Addr().String()
		_ = listener.Close()
	}
	var err error
	i.hub,
		err = i.launch("hub", []string{"TEMPORAL_ADDRESS=" + i.Temporal, "TEMPORAL_NAMESPACE=" + i.Namespace,
		"MAINSTAY_TOKEN_KEY=" + benchKey}, nil,
		[]string{"serve", "--insecure", "--roles", roles, "--http", strings.TrimPrefix(i.hubURL, "http://"), "--hub-id",
			"bench-hub", "--log-level", "warn"})
	if err != nil {
		return err
	}
	return i.awaitReady(ctx, i.hubURL)
}

// benchKey protects nothing: the hub is reachable from this machine only and lives for minutes.
const benchKey = "a-key-for-benchmarks-that-protects-nothing"

// awaitReady returns when /readyz says so.
func (i *Installation) awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit,
		fmt.Errorf("%s is not ready; it said:\n%s", url, i.said("hub")))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-i.hub.Done():
			return fmt.Errorf("the hub has ended; it said:\n%s", i.said("hub"))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// KillHub ends the hub's own process with SIGKILL.
func (i *Installation) KillHub() {
	i.hub.Kill()
	<-i.hub.Done()
}

// Stop ends agents, then the control plane, so that a CPU profile is written.
func (i *Installation) Stop() {
	i.mu.Lock()
	procs := i.procs
	i.procs = nil
	i.mu.Unlock()
	for _, p := range procs {
		p.Kill()
	}
	for _, p := range procs {
		<-p.Done()
	}
	if i.hub != nil {
		i.KillHub()
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
	<-i.plane.Done()
}

// Process is a process of an Installation.
type Process struct {
	command *exec.Cmd
	done    chan struct{}
}

// PID is the process's id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal; to a process that has ended, nothing.
func (p *Process) Signal(s os.Signal) { _ = p.command.Process.Signal(s) }

// Kill sends SIGKILL, which reaches stopped processes too.
func (p *Process) Kill() { p.Signal(syscall.SIGKILL) }
