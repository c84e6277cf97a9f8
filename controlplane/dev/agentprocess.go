package dev

import (
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

	"mainstay.dev/mainstay/spawner"
)

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
