package dev

import (
	"context"
	"fmt"
	"sync"
	"time"

	"mainstay.dev/mainstay/cli/app"
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
