package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/spawner"
)

const (
	// restartDelay keeps an agent that dies at once from being started all the time.
	restartDelay = 5 * time.Second
	// killAfter is how long an agent has between SIGTERM and SIGKILL.
	killAfter = 10 * time.Second
)

// process is a running agent process.
type process interface {
	PID() int
	// Wait returns when the process has ended.
	Wait() ending
	Terminate()
	Kill()
}

// ending is how a process ended. code is -1 when a signal ended it or when nobody knows.
type ending struct {
	code int
	how  string
}

// launcher starts agent processes and finds those that an earlier `dev` left.
type launcher interface {
	Launch(id string) (process, error)
	// Adopt returns the process that runs the agent already, if there is one that was started in the same way.
	Adopt(id string) (process, bool)
}

// supervisor keeps agents running until it is stopped.
type supervisor struct {
	launcher launcher
	after    func(time.Duration) <-chan time.Time
	say      func(format string, args ...any)

	mu      sync.Mutex
	running map[string]process
	stopped bool
	wg      sync.WaitGroup
	cancel  context.CancelFunc
}

// startSupervisor starts or adopts every agent. When one cannot be started, those that were are stopped.
func startSupervisor(
	ctx context.Context, l launcher, ids []string, after func(time.Duration) <-chan time.Time, say func(string, ...any),
) (*supervisor, error) {
	// Agents end when stop says so, not when the signal comes: stopping has an order.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &supervisor{launcher: l, after: after, say: say, running: map[string]process{}, cancel: cancel}
	for _, id := range ids {
		p, adopted := l.Adopt(id)
		if !adopted {
			var err error
			if p, err = l.Launch(id); err != nil {
				s.stop()
				return nil, fmt.Errorf("start %s: %w", id, err)
			}
		}
		s.running[id] = p
		s.wg.Go(func() { s.keep(ctx, id, p) })
	}
	return s, nil
}

// keep starts an agent again whenever it has ended, unless another process has taken its id.
func (s *supervisor) keep(ctx context.Context, id string, p process) {
	for {
		end := p.Wait()
		if !s.ended(id) {
			return
		}
		if end.code == app.ExitConflict {
			s.say("%s (pid %d) has ended: another process runs under its id. It is not started again.", id, p.PID())
			return
		}
		s.say("%s (pid %d) %s; it is started again in %s.", id, p.PID(), end.how, restartDelay)
		if p = s.restart(ctx, id); p == nil {
			return
		}
	}
}

// ended notes that an agent's process has ended; false when it was meant to.
func (s *supervisor) ended(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, id)
	return !s.stopped
}

// restart waits and starts the agent; nil when the supervisor stops.
func (s *supervisor) restart(ctx context.Context, id string) process {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.after(restartDelay):
		}
		s.mu.Lock()
		if s.stopped {
			s.mu.Unlock()
			return nil
		}
		p, err := s.launcher.Launch(id)
		if err == nil {
			s.running[id] = p
		}
		s.mu.Unlock()
		if err == nil {
			return p
		}
		s.say("%s cannot be started: %v; trying again in %s.", id, err, restartDelay)
	}
}

// pids are the running processes by agent.
func (s *supervisor) pids() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	pids := make(map[string]int, len(s.running))
	for id, p := range s.running {
		pids[id] = p.PID()
	}
	return pids
}

// each calls do for all running processes.
func (s *supervisor) each(do func(process)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.running {
		do(p)
	}
}

// killOne ends one agent with SIGKILL.
func (s *supervisor) killOne(id string) (pid int, killed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, running := s.running[id]
	if !running {
		return 0, false
	}
	p.Kill()
	return p.PID(), true
}

// stop ends all agents, gently at first, and returns when they are gone. It may be called twice.
func (s *supervisor) stop() {
	s.mu.Lock()
	first := !s.stopped
	s.stopped = true
	s.mu.Unlock()
	s.cancel()
	if first {
		s.each(process.Terminate)
	}
	gone := make(chan struct{})
	go func() { s.wg.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-s.after(killAfter):
		s.each(process.Kill)
		<-gone
	}
}

// kill ends all agents at once.
func (s *supervisor) kill() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.each(process.Kill)
}

// agentsFile lists the agents' processes in the data directory, so that the next `dev` finds them when this one was
// killed.
const agentsFile = "agents.json"

// adoptedPoll is how often an adopted process, which is nobody's child here, is looked at.
const adoptedPoll = 500 * time.Millisecond

// agentRecord is one line of agentsFile.
type agentRecord struct {
	PID  int      `json:"pid"`
	Args []string `json:"args"`
}

// agentLauncher runs agents as processes of this program, in process groups of their own: a Ctrl-C in the terminal
// reaches only `dev`, which stops them in order.
type agentLauncher struct {
	program string
	dir     string                   // data directory
	args    func(id string) []string // command line of an agent
	env     []string                 // beside this process's own: what must not be seen on a command line
	found   map[string]foundAgent    // what an earlier `dev` left

	mu      sync.Mutex
	records map[string]agentRecord
}

type foundAgent struct {
	agentRecord
	same bool // it was started as we would start it
}

// newAgentLauncher reads what an earlier `dev` left. ids are the agents that are wanted now.
func newAgentLauncher(program, dir string, args func(id string) []string) (*agentLauncher, error) {
	l := &agentLauncher{program: program, dir: dir, args: args, found: map[string]foundAgent{},
		records: map[string]agentRecord{}}
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the agents' logs: %w", err)
	}
	data, err := os.ReadFile(filepath.Join(dir, agentsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which agents run: %w", err)
	}
	var records map[string]agentRecord
	if err := json.Unmarshal(data, &records); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w; remove it when no agents of an earlier run live",
			filepath.Join(dir, agentsFile), err)
	}
	for id, record := range records {
		if runsAs(record.PID, record.Args) {
			l.found[id] = foundAgent{record, slices.Equal(record.Args, args(id))}
			l.records[id] = record
		}
	}
	return l, nil
}

// endLeftovers stops those of an earlier run that are not wanted, or that were started in another way, and waits for
// them: a new process with the same id would only fence them.
func (l *agentLauncher) endLeftovers(wanted []string) {
	var wg sync.WaitGroup
	for id, found := range l.found {
		if found.same && slices.Contains(wanted, id) {
			continue
		}
		delete(l.found, id)
		p := &adoptedProcess{record: found.agentRecord}
		p.Terminate()
		wg.Go(func() {
			kill := time.AfterFunc(killAfter, p.Kill)
			p.Wait()
			kill.Stop()
		})
	}
	wg.Wait()
}

// Adopt implements launcher.
func (l *agentLauncher) Adopt(id string) (process, bool) {
	found, ok := l.found[id]
	if !ok {
		return nil, false
	}
	return &adoptedProcess{record: found.agentRecord}, true
}

// Launch implements launcher. The agent's output is appended to its log.
func (l *agentLauncher) Launch(id string) (process, error) {
	log, err := os.OpenFile(l.logPath(id), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(l.program, l.args(id)...)
	command.Env = append(spawner.Environment(), l.env...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, err
	}
	if err := l.record(id, command.Process.Pid); err != nil {
		_ = command.Process.Kill()
		_ = command.Wait()
		return nil, err
	}
	return &childProcess{command}, nil
}

func (l *agentLauncher) logPath(id string) string { return filepath.Join(l.dir, "logs", id+".log") }

func (l *agentLauncher) record(id string, pid int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records[id] = agentRecord{PID: pid, Args: l.args(id)}
	data, err := json.MarshalIndent(l.records, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(l.dir, agentsFile), append(data, '\n'))
}

// forget removes the list once all agents have ended.
func (l *agentLauncher) forget() { _ = os.Remove(filepath.Join(l.dir, agentsFile)) }

// childProcess is an agent that this process has started.
type childProcess struct{ command *exec.Cmd }

func (p *childProcess) PID() int { return p.command.Process.Pid }

func (p *childProcess) Wait() ending {
	_ = p.command.Wait()
	state := p.command.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return ending{-1, "was ended by " + unix.SignalName(status.Signal())}
	}
	return ending{state.ExitCode(), fmt.Sprintf("ended with exit code %d", state.ExitCode())}
}

func (p *childProcess) Terminate() { _ = p.command.Process.Signal(syscall.SIGTERM) }

// Kill ends what the agent runs too: commands have process groups of their own and die with the agent.
func (p *childProcess) Kill() { _ = p.command.Process.Kill() }

// adoptedProcess is an agent that an earlier `dev` has started. Its id may have gone to another process any time, so it
// is looked at before each signal.
type adoptedProcess struct{ record agentRecord }

func (p *adoptedProcess) PID() int { return p.record.PID }

func (p *adoptedProcess) Wait() ending {
	tick := time.NewTicker(adoptedPoll)
	defer tick.Stop()
	for runsAs(p.record.PID, p.record.Args) {
		<-tick.C
	}
	return ending{-1, "has ended"}
}

func (p *adoptedProcess) Terminate() { p.signal(syscall.SIGTERM) }
func (p *adoptedProcess) Kill()      { p.signal(syscall.SIGKILL) }

func (p *adoptedProcess) signal(s syscall.Signal) {
	if runsAs(p.record.PID, p.record.Args) {
		_ = syscall.Kill(p.record.PID, s)
	}
}
