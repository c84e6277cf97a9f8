package process

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/build"
	"mainstay.dev/mainstay/testsuite/freeport"
)

// patience bounds every wait; a test that passes needs little of it.
const patience = 3 * time.Minute

// program is a process that a test has started.
type program struct {
	command        *exec.Cmd
	stdout, stderr build.Output
	ended          chan struct{}
}

// start runs the program; env is added to an environment that names no Temporal. It is killed when the test ends.
func start(t testing.TB, env []string, args ...string) *program {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	p := launch(t, env, path, args...)
	t.Cleanup(func() { p.end(t) })
	return p
}

// launch runs any program. The caller ends it.
func launch(t testing.TB, env []string, path string, args ...string) *program {
	t.Helper()
	p := &program{command: exec.Command(path, args...), ended: make(chan struct{})}
	p.command.Env = append(plainEnvironment(), env...)
	p.command.Stdout, p.command.Stderr = &p.stdout, &p.stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a shell's children end with it
	p.command.WaitDelay = time.Second                           // they may hold its output open
	require.NoError(t, p.command.Start())
	go func() { _ = p.command.Wait(); close(p.ended) }()
	return p
}

func plainEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "TEMPORAL_") || strings.HasPrefix(v, "MAINSTAY_")
	})
}

// end kills the process if it still runs, and shows what it said if the test failed.
func (p *program) end(t testing.TB) {
	select {
	case <-p.ended:
	default:
		_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
		<-p.ended
	}
	if t.Failed() {
		t.Logf("%s said:\n%s%s", p.command.Args, p.stdout.String(), p.stderr.String())
	}
}

// over reports whether the process has ended.
func (p *program) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *program) pid() int { return p.command.Process.Pid }

// signal sends a signal to the process alone.
func (p *program) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.command.Process.Signal(s))
}

// exit waits for the end of the process and returns its exit code, -1 after a signal.
func (p *program) exit(t testing.TB) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.command.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("%s goes on", p.command.Args)
		return 0
	}
}

// says waits until the process has written the text to its standard error.
func (p *program) says(t testing.TB, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), text) }, patience,
		10*time.Millisecond, "it never said %q but:\n%s", text, &p.stderr)
}

// fails runs the program to its end, which must come with the code and a clear message with all the texts.
func fails(t testing.TB, env []string, code int, texts []string, args ...string) {
	t.Helper()
	p := start(t, env, args...)
	require.Equal(t, code, p.exit(t), "%s", &p.stderr)
	for _, text := range texts {
		require.Contains(t, p.stderr.String(), text)
	}
	require.NotContains(t, p.stderr.String(), "goroutine ", "a stack trace is no message")
	require.Empty(t, p.stdout.String())
}

// alive reports whether a process with this id runs. One that has ended but was not waited for does not: an orphan's
// new parent may take its time.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && strings.Contains(string(stat), ") Z ") {
		return false
	}
	return syscall.Kill(pid, 0) == nil
}

// freeAddress is one that nothing listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	address, err := freeport.Address()
	require.NoError(t, err)
	return address
}

// busyAddress is one that the test listens on.
func busyAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
