package proctree

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// withoutCgroup is the argv[0] of a guard that makes no cgroup, as where it may not.
const withoutCgroup = "guard-without-cgroup"

func TestMain(m *testing.M) {
	if os.Args[0] == withoutCgroup {
		runtime.LockOSThread()
		guard(os.NewFile(Socket, "agent"), "")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// family is a command with a child, a grandchild, one that ignores SIGTERM, a daemon in a session of its own and one
// whose parents have ended. Each writes its process id to a file.
const family = `
sh -c 'echo $$ >child; sh -c "echo \$\$ >grandchild; sleep 1000; true"; true' &
(trap "" TERM; sh -c 'echo $$ >deaf; while :; do sleep 1000; done') &
setsid sh -c 'echo $$ >daemon; sleep 1000; true' &
(setsid sh -c '(sh -c "echo \$\$ >orphan; trap \"\" TERM HUP; while :; do sleep 1000; done" &) ; exit' &)
for name in child grandchild deaf daemon orphan; do until [ -s $name ]; do sleep 0.01; done; done
echo $$ >command
`

var members = []string{"child", "grandchild", "deaf", "daemon", "orphan"}

// guarded is a guard and the agent's end of its socket.
type guarded struct {
	process *exec.Cmd
	socket  *os.File
	dir     string
	scratch string
}

func startGuard(t *testing.T, name, script string) *guarded {
	t.Helper()
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, syscall.SetNonblock(ends[0], true))
	g := &guarded{process: exec.Command("/proc/self/exe"), socket: os.NewFile(uintptr(ends[0]), "guard")}
	theirs := os.NewFile(uintptr(ends[1]), "agent")
	g.process.Args, g.process.ExtraFiles, g.process.SysProcAttr = []string{name}, []*os.File{theirs}, &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, g.process.Start())
	require.NoError(t, theirs.Close())
	t.Cleanup(func() {
		_ = g.socket.Close()
		_ = g.process.Wait()
	})
	g.run(t, script)
	return g
}

// run has it start a script, which writes its output to a file, in a folder of its own.
func (g *guarded) run(t *testing.T, script string) {
	t.Helper()
	g.dir = t.TempDir()
	g.scratch = filepath.Join(g.dir, "scratch")
	require.NoError(t, os.Mkdir(g.scratch, 0o700))
	command := Command{Path: "/bin/sh", Dir: g.dir, Scratch: g.scratch, Args: []string{"sh", "-c", script}, Env: os.Environ()}
	start, err := command.Start()
	require.NoError(t, err)
	output, err := os.Create(filepath.Join(g.dir, "output"))
	require.NoError(t, err)
	require.NoError(t, Send(g.socket, start, [2]int{int(output.Fd()), int(output.Fd())}))
	require.NoError(t, output.Close())
}

// awaitEmpty waits until nothing of the tree is left. Then the guard ends, because its agent has.
func (g *guarded) awaitEmpty(t *testing.T) {
	t.Helper()
	for r, err := ReadReport(g.socket); err == nil && !r.Empty; {
		r, err = ReadReport(g.socket)
	}
	_ = g.socket.Close()
	require.NoError(t, g.process.Wait())
}

func (g *guarded) pid(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, name))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	return pid
}

func (g *guarded) await(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(g.dir, name))
		return err == nil && strings.HasSuffix(string(text), "\n")
	}, 20*time.Second, 5*time.Millisecond, "%s does not come up", name)
}

func (g *guarded) requireNothingLeft(t *testing.T) {
	t.Helper()
	for _, name := range members {
		_, lives := readProcess(g.pid(t, name))
		require.False(t, lives, "%s is left", name)
	}
	own := ownCgroup()
	require.NoDirExists(t, string(cgroupOf(own, g.process.Process.Pid)))
}

func TestGuardKillsTheWholeTree(t *testing.T) {
	t.Parallel()
	send := func(message []byte) func(*testing.T, *guarded) {
		return func(t *testing.T, g *guarded) {
			_, err := g.socket.Write(message)
			require.NoError(t, err)
		}
	}
	for cause, do := range map[string]func(*testing.T, *guarded){
		"the agent has ended": func(t *testing.T, g *guarded) { require.NoError(t, g.socket.Close()) },
		"it has ended while the guard was stopped": func(t *testing.T, g *guarded) {
			require.NoError(t, g.process.Process.Signal(syscall.SIGSTOP))
			require.NoError(t, g.socket.Close())
			require.NoError(t, g.process.Process.Signal(AgentGone)) // as the kernel does
		},
		"the agent says so":   send(Kill()),
		"the lease is over":   send(Lease(Monotonic() + 50*time.Millisecond)),
		"the lease was over":  send(Lease(Monotonic() - time.Hour)),
		"the lease is cut":    send(append(Lease(Monotonic()+time.Hour), Lease(Monotonic()+50*time.Millisecond)...)),
		"first more politely": send(append(Terminate(), Kill()...)),
	} {
		for _, name := range []string{Name, withoutCgroup} {
			t.Run(cause+", "+name, func(t *testing.T) {
				t.Parallel()
				g := startGuard(t, name, family+"sleep 1000; true")
				g.await(t, "command")
				do(t, g)
				g.awaitEmpty(t)
				g.requireNothingLeft(t)
				_, lives := readProcess(g.pid(t, "command"))
				require.False(t, lives)
				if strings.Contains(cause, "has ended") {
					require.NoDirExists(t, g.scratch)
				} else {
					require.DirExists(t, g.scratch, "the agent removes it")
				}
			})
		}
	}
}

func TestGuardReportsTheEndAndKeepsTheRestUntilTold(t *testing.T) {
	t.Parallel()
	g := startGuard(t, Name, family+"exit 7")
	r, err := ReadReport(g.socket)
	require.NoError(t, err)
	require.True(t, r.Ended)
	require.Equal(t, 7, r.Status.ExitStatus())
	_, lives := readProcess(g.pid(t, "daemon"))
	require.True(t, lives, "it may still write what the agent reads")
	_, err = g.socket.Write(Kill())
	require.NoError(t, err)
	r, err = ReadReport(g.socket)
	require.NoError(t, err)
	require.True(t, r.Empty)
	g.requireNothingLeft(t)
}

func TestGuardStartsOneCommandAfterTheOther(t *testing.T) {
	t.Parallel()
	g := startGuard(t, Name, family+"echo 0; exit 10")
	for i := range 3 {
		if i > 0 {
			g.run(t, family+fmt.Sprintf("echo %d; exit %d", i, 10+i))
		}
		r, err := ReadReport(g.socket)
		require.NoError(t, err)
		require.True(t, r.Ended)
		require.Equal(t, 10+i, r.Status.ExitStatus())
		for range 2 { // the second comes too late, and is not for the next command
			_, err = g.socket.Write(Kill())
			require.NoError(t, err)
		}
		r, err = ReadReport(g.socket)
		require.NoError(t, err)
		require.True(t, r.Empty)
		g.requireNothingLeft(t)
		output, err := os.ReadFile(filepath.Join(g.dir, "output"))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintln(i), string(output))
		require.Empty(t, extraFiles(t, g.process.Process.Pid), "the guard keeps files of a command")
	}
}

// A command that runs for long may start many processes whose parents end before them.
func TestGuardReapsWhatEndsBelowACommand(t *testing.T) {
	t.Parallel()
	g := startGuard(t, Name, "for i in $(seq 50); do (sh -c 'sleep 0.1' &); done; echo $$ >command; sleep 1000; true")
	g.await(t, "command")
	require.Eventually(t, func() bool {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", g.process.Process.Pid))
		return err == nil && len(strings.Fields(string(children))) == 1
	}, time.Minute, 5*time.Millisecond)
}

// extraFiles are the files that a process has open in a test's folder.
func extraFiles(t *testing.T, pid int) (list []string) {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/fd/", pid)
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, f := range files {
		if to, err := os.Readlink(folder + f.Name()); err == nil && strings.HasSuffix(to, "/output") {
			list = append(list, to)
		}
	}
	return list
}

func TestLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	g := startGuard(t, Name, "echo $$ >command; until [ -e go ]; do sleep 0.01; done; exit 3")
	g.await(t, "command")
	_, err := g.socket.Write(append(Lease(Monotonic()+200*time.Millisecond), Lease(Monotonic()+time.Hour)...))
	require.NoError(t, err)
	<-time.After(300 * time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(g.dir, "go"), nil, 0o600))
	r, err := ReadReport(g.socket)
	require.NoError(t, err)
	require.Equal(t, 3, r.Status.ExitStatus(), "the first lease does not count any more")
}

func TestGuardWithoutAnAgentStartsNothing(t *testing.T) {
	t.Parallel()
	g := &guarded{process: exec.Command("/proc/self/exe")}
	ours, theirs, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, theirs.Close())
	g.process.Args, g.process.ExtraFiles = []string{Name}, []*os.File{ours}
	require.NoError(t, g.process.Run())
	require.NoError(t, ours.Close())
}

func TestKillLeft(t *testing.T) {
	t.Parallel()
	g := startGuard(t, Name, family+"sleep 1000; true")
	g.await(t, "command")
	require.NoError(t, g.process.Process.Kill())
	KillLeft(g.process.Process.Pid)
	names := members
	if ownCgroup() == "" || !writable(ownCgroup()) {
		names = []string{"child", "grandchild", "deaf"} // those that left the session are not found
	}
	for _, name := range names {
		require.Eventually(t, func() bool { _, lives := readProcess(g.pid(t, name)); return !lives }, 10*time.Second,
			5*time.Millisecond, name)
	}
}

// A command may make cgroups below its own, which end with it.
func TestCgroupsBelowTheCommandsOwnAreRemoved(t *testing.T) {
	t.Parallel()
	own := ownCgroup()
	if own == "" || !writable(own) {
		t.Skip("no cgroup can be made here")
	}
	for cause, end := range map[string]func(*testing.T, *guarded){
		"the guard is killed": func(t *testing.T, g *guarded) {
			require.NoError(t, g.process.Process.Kill())
			left := make(chan bool, 1)
			go func() { left <- KillLeft(g.process.Process.Pid) }()
			select {
			case is := <-left:
				require.False(t, is)
			case <-time.After(20 * time.Second):
				require.Fail(t, "KillLeft does not return")
			}
		},
		"the guard ends it": func(t *testing.T, g *guarded) {
			_, err := g.socket.Write(Kill())
			require.NoError(t, err)
			g.awaitEmpty(t)
		},
	} {
		for what, below := range map[string]string{
			"empty": "mkdir -p $group/a/b $group/c",
			"with a process": "mkdir -p $group/a/b; " +
				"setsid sh -c 'echo $$ >'$group'/a/b/cgroup.procs; echo $$ >child; sleep 1000' &",
			"frozen": "mkdir -p $group/a; echo $$ >$group/a/cgroup.procs; echo 1 >$group/a/cgroup.freeze",
		} {
			t.Run(what+", "+cause, func(t *testing.T) {
				t.Parallel()
				g := startGuard(t, Name, "group="+own+"/"+Name+"-$PPID\n"+below+"\necho $$ >command; sleep 1000; true")
				group := cgroupOf(own, g.process.Process.Pid)
				require.Eventually(t, func() bool {
					_, err := os.Stat(string(group) + "/a")
					return err == nil
				}, 20*time.Second, 5*time.Millisecond)
				if what != "frozen" { // which is frozen before it can say so
					g.await(t, "command")
				}
				if what == "with a process" {
					g.await(t, "child")
				}
				end(t, g)
				require.NoDirExists(t, string(group))
			})
		}
	}
}

func writable(folder string) bool {
	probe := cgroup(folder + "/probe-" + strconv.Itoa(os.Getpid()))
	return os.Mkdir(string(probe), 0o755) == nil && probe.remove()
}

func TestMessages(t *testing.T) {
	t.Parallel()
	for _, c := range []Command{
		{Path: "/bin/true", Args: []string{"true"}},
		{Path: "a", Dir: "/x y", Scratch: "/s", Args: []string{"", "b\n", ""}, Env: []string{"A=", "B=ü"}},
	} {
		start, err := c.Start()
		require.NoError(t, err)
		require.EqualValues(t, orderStart, start[0])
		got, err := readCommand(strings.NewReader(string(start[1:])))
		require.NoError(t, err)
		require.Equal(t, c.Args, got.Args)
		require.ElementsMatch(t, c.Env, got.Env)
		require.Equal(t, [3]string{c.Path, c.Dir, c.Scratch}, [3]string{got.Path, got.Dir, got.Scratch})
		_, err = readCommand(strings.NewReader(string(start[1 : len(start)-1])))
		require.Error(t, err, "the agent ended while it wrote")
	}
	_, err := (&Command{Path: "a\x00b"}).Start()
	require.Error(t, err)
}
