package dev

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cli/app"
	"mainstay.dev/mainstay/internal/cli/clitest"
)

// fakeProcess ends when it is told to.
type fakeProcess struct {
	pid      int
	end      chan ending
	stubborn bool // does not listen to SIGTERM
	once     sync.Once
}

func (p *fakeProcess) PID() int     { return p.pid }
func (p *fakeProcess) Wait() ending { return <-p.end }
func (p *fakeProcess) Terminate() {
	if !p.stubborn {
		p.exit(ending{0, "ended"})
	}
}
func (p *fakeProcess) Kill()         { p.exit(ending{-1, "was ended by SIGKILL"}) }
func (p *fakeProcess) exit(e ending) { p.once.Do(func() { p.end <- e }) }

// fakeLauncher starts fake processes with pids from 1 on.
type fakeLauncher struct {
	launched chan *fakeProcess
	adopted  map[string]*fakeProcess
	stubborn bool

	mu    sync.Mutex
	count int
	fails map[int]error // by the number of the launch
}

func (l *fakeLauncher) Launch(string) (process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	if err := l.fails[l.count]; err != nil {
		return nil, err
	}
	p := &fakeProcess{pid: l.count, end: make(chan ending, 1), stubborn: l.stubborn}
	l.launched <- p
	return p, nil
}

func (l *fakeLauncher) Adopt(id string) (process, bool) {
	p, ok := l.adopted[id]
	return p, ok
}

// clock hands out timers that the test fires.
type clock struct{ timers chan timer }

type timer struct {
	d    time.Duration
	fire chan time.Time
}

func (c *clock) after(d time.Duration) <-chan time.Time {
	fire := make(chan time.Time, 1)
	c.timers <- timer{d, fire}
	return fire
}

// supervised is a supervisor with its world.
type supervised struct {
	*supervisor
	launcher *fakeLauncher
	clock    *clock
	said     chan string
}

func supervise(t *testing.T, l *fakeLauncher, ids ...string) *supervised {
	t.Helper()
	l.launched = make(chan *fakeProcess, 100)
	s := &supervised{launcher: l, clock: &clock{make(chan timer, 100)}, said: make(chan string, 100)}
	var err error
	s.supervisor, err = startSupervisor(t.Context(), l, ids, s.clock.after,
		func(format string, args ...any) { s.said <- fmt.Sprintf(format, args...) })
	require.NoError(t, err)
	t.Cleanup(s.kill)
	return s
}

func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func TestSupervisorStartsADeadAgentAgain(t *testing.T) {
	t.Parallel()
	s := supervise(t, &fakeLauncher{}, "agent-1", "agent-2")
	first := next(t, s.launcher.launched)
	next(t, s.launcher.launched)
	require.Equal(t, map[string]int{"agent-1": 1, "agent-2": 2}, s.pids())
	first.Kill()
	require.Equal(t, "agent-1 (pid 1) was ended by SIGKILL; it is started again in 5s.", next(t, s.said))
	wait := next(t, s.clock.timers)
	require.Equal(t, restartDelay, wait.d)
	require.Empty(t, s.launcher.launched, "not before the delay is over")
	require.Equal(t, map[string]int{"agent-2": 2}, s.pids())
	wait.fire <- clitest.Now
	require.Equal(t, 3, next(t, s.launcher.launched).pid)
	require.Eventually(t, func() bool { return s.pids()["agent-1"] == 3 }, 10*time.Second, time.Millisecond)
}

func TestSupervisorKeepsTryingToStart(t *testing.T) {
	t.Parallel()
	s := supervise(t, &fakeLauncher{fails: map[int]error{2: errors.New("no memory")}}, "agent-1")
	next(t, s.launcher.launched).exit(ending{1, "ended with exit code 1"})
	next(t, s.said)
	next(t, s.clock.timers).fire <- clitest.Now
	require.Equal(t, "agent-1 cannot be started: no memory; trying again in 5s.", next(t, s.said))
	next(t, s.clock.timers).fire <- clitest.Now
	require.Equal(t, 3, next(t, s.launcher.launched).pid)
}

func TestSupervisorLeavesAFencedAgentAlone(t *testing.T) {
	t.Parallel()
	s := supervise(t, &fakeLauncher{}, "agent-1")
	next(t, s.launcher.launched).exit(ending{app.ExitConflict, "ended with exit code 5"})
	require.Equal(t, "agent-1 (pid 1) has ended: another process runs under its id. It is not started again.",
		next(t, s.said))
	s.wg.Wait()
	require.Empty(t, s.clock.timers)
	require.Empty(t, s.launcher.launched)
}

func TestSupervisorAdopts(t *testing.T) {
	t.Parallel()
	old := &fakeProcess{pid: 77, end: make(chan ending, 1)}
	s := supervise(t, &fakeLauncher{adopted: map[string]*fakeProcess{"agent-1": old}}, "agent-1", "agent-2")
	require.Equal(t, 1, next(t, s.launcher.launched).pid)
	require.Equal(t, map[string]int{"agent-1": 77, "agent-2": 1}, s.pids())
	old.exit(ending{-1, "has ended"})
	require.Contains(t, next(t, s.said), "agent-1 (pid 77) has ended; it is started again")
	next(t, s.clock.timers).fire <- clitest.Now
	require.Equal(t, 2, next(t, s.launcher.launched).pid)
}

func TestSupervisorStops(t *testing.T) {
	t.Parallel()
	t.Run("gently", func(t *testing.T) {
		t.Parallel()
		s := supervise(t, &fakeLauncher{}, "agent-1", "agent-2")
		s.stop()
		require.Empty(t, s.pids())
		require.Empty(t, s.said)
		s.stop()
	})
	t.Run("by force when they do not listen", func(t *testing.T) {
		t.Parallel()
		s := supervise(t, &fakeLauncher{stubborn: true}, "agent-1")
		stopped := make(chan struct{})
		go func() { s.stop(); close(stopped) }()
		wait := next(t, s.clock.timers)
		require.Equal(t, killAfter, wait.d)
		require.Len(t, s.pids(), 1)
		wait.fire <- clitest.Now
		next(t, stopped)
		require.Empty(t, s.pids())
	})
	t.Run("while one waits to be started again", func(t *testing.T) {
		t.Parallel()
		s := supervise(t, &fakeLauncher{}, "agent-1")
		next(t, s.launcher.launched).Kill()
		next(t, s.clock.timers)
		s.stop()
		require.Empty(t, s.launcher.launched)
	})
	t.Run("those that run when one cannot be started", func(t *testing.T) {
		t.Parallel()
		l := &fakeLauncher{launched: make(chan *fakeProcess, 2), fails: map[int]error{2: errors.New("no memory")}}
		_, err := startSupervisor(t.Context(), l, []string{"agent-1", "agent-2"}, time.After, t.Logf)
		require.EqualError(t, err, "start agent-2: no memory")
		p := next(t, l.launched)
		p.once.Do(func() { t.Error("the first was not ended") })
	})
}
