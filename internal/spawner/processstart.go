package spawner

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mainstay.dev/mainstay/internal/cluster"
)

// start runs the record's command in a process group of its own, its output appended to its log.
func (p *Process) start(rec record) (*running, error) {
	log, err := os.OpenFile(p.logPath(rec.Spec.ID), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the agent's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(rec.Command[0], rec.Command[1:]...)
	command.Stdout, command.Stderr, command.Env = log, log, p.environment(rec.Spec)
	if p.options.JoinToken != nil {
		file, err := writeToken(p.options.Dir, rec.Spec, p.options.JoinToken)
		if err != nil {
			return nil, err
		}
		command.Env = append(command.Env, EnvJoinTokenFile+"="+file)
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start the agent's process: %w", err)
	}
	rec.PID, rec.StartedAt = command.Process.Pid, time.Now()
	rec.Ticks = beginning(rec.PID)
	r := &running{record: rec, ended: make(chan struct{})}
	if err := writeRecord(p.options.Dir, rec); err != nil {
		r.kill()
		_ = command.Wait()
		return nil, err
	}
	p.mu.Lock()
	p.running[rec.Spec.ID] = r
	p.mu.Unlock()
	p.options.Logger.Sugar().Infow("An agent was started", "agent", rec.Spec.ID, "cluster", rec.Spec.Cluster, "pid",
		rec.PID)
	go func() {
		_ = command.Wait()
		p.noteEnd(r, ending(command.ProcessState))
	}()
	return r, nil
}

// Environment is this process's own, without the variables of Mainstay and Temporal: agents get none of their secrets.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "MAINSTAY_") || strings.HasPrefix(entry, "TEMPORAL_")
	})
}

func (p *Process) environment(spec cluster.SpawnSpec) []string {
	env := append(Environment(), p.options.Environment(&spec)...)
	for _, name := range []string{"MAINSTAY_CA", "MAINSTAY_CERT", "MAINSTAY_KEY"} { // names of files, no secrets
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (p *Process) logPath(id string) string { return filepath.Join(p.options.Dir, "logs", id+".log") }

// lastWords is the last line of an agent's log, to say why it ended.
func (p *Process) lastWords(id string) string {
	log, err := os.Open(p.logPath(id))
	if err != nil {
		return ""
	}
	defer func() { _ = log.Close() }()
	end := make([]byte, 8<<10) // of a log that may be large
	if info, err := log.Stat(); err == nil {
		_, _ = log.Seek(max(0, info.Size()-int64(len(end))), io.SeekStart)
	}
	n, _ := io.ReadFull(log, end)
	return LastWords(string(end[:n]))
}

func ending(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return "was ended by " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("ended with exit code %d", state.ExitCode())
}

func (r *running) terminate() { r.signal(r.PID, syscall.SIGTERM) }

// kill ends the whole process group.
func (r *running) kill() { r.signal(-r.PID, syscall.SIGKILL) }

// signal looks first: the number of a process that has ended may belong to another.
func (r *running) signal(to int, s syscall.Signal) {
	if r.alive() {
		_ = syscall.Kill(to, s)
	}
}
