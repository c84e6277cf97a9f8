package proctree

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// init is where a program that was started as a guard stays. It runs on the main thread, which lives as long as the
// process: the kernel kills the command when the thread that started it ends.
func init() {
	if len(os.Args) == 1 && os.Args[0] == Name {
		guard(os.NewFile(Socket, "agent"), ownCgroup())
		os.Exit(0)
	}
}

// tree is a command and all of its descendants.
type tree struct {
	agent   *os.File
	command int // its process id
	handle  int // the kernel's handle for the command's end; -1: it has ended, or the kernel has none
	group   cgroup
	status  syscall.WaitStatus
	untold  bool // the command has ended with this status, and the agent does not know
}

// guard starts the agent's commands, one after the other, and returns when the agent has ended and nothing of the last
// one's tree is left. below is the folder of the cgroup in which to make the commands' own, or "". It does all on one
// thread: passing events between threads took a third of a guard's time.
func guard(agent *os.File, below string) {
	syscall.CloseOnExec(Socket)
	const setChildSubreaper = 36
	_, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
	// It stays dumpable: its spawner reads its environment to see whether anything of the agent is left.
	keepOn()
	from := &inbox{socket: Socket}
	for {
		o, err := readOrder(from)
		if err != nil {
			return
		}
		if o.kind != orderStart {
			continue // the command that it is for has ended meanwhile
		}
		t := &tree{agent: agent, handle: -1}
		errno := failed
		if errno == 0 {
			errno = t.start(&o, makeCgroup(below, os.Getpid()))
		}
		closeAll(o.files)
		if errno == 0 {
			t.watch(from)
			t.end()
		} else {
			t.group.remove()
			report(agent, reportFailed, uint32(errno))
		}
		if !t.reportEmpty() && o.command.Scratch != "" {
			_ = os.RemoveAll(o.command.Scratch)
		}
	}
}

// keepOn lets the guard survive signals to a whole service or terminal: the agent decides what ends. Ignored signals
// stay ignored, because the command inherits that.
func keepOn() {
	unread := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(unread, s)
		}
	}
}

// start starts the command in a process group of its own, and in a cgroup of its own where that is possible. Its output
// is the command's alone: the agent reads it until no process holds it.
func (t *tree) start(o *order, group cgroup) syscall.Errno {
	c := &o.command
	attr := &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: []uintptr{0, uintptr(o.files[0]), uintptr(o.files[1])},
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}}
	t.group = group
	err := error(syscall.ENOSYS)
	if folder, opened := t.group.open(); opened == nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(folder.Fd())
		t.command, err = syscall.ForkExec(c.Path, c.Args, attr)
		_ = folder.Close()
	}
	if err != nil { // perhaps because the kernel cannot start it in that cgroup
		attr.Sys.UseCgroupFD = false
		t.command, err = syscall.ForkExec(c.Path, c.Args, attr)
	}
	if errno, is := err.(syscall.Errno); is { //nolint:errorlint // ForkExec does not wrap
		return errno
	}
	if err != nil {
		return syscall.EINVAL
	}
	const pidfdOpen = 434 // on all architectures; from Linux 5.3 on
	if handle, _, errno := syscall.RawSyscall(pidfdOpen, uintptr(t.command), 0, 0); errno == 0 {
		t.handle = int(handle)
	}
	return 0
}

// watch follows the agent's orders until the tree is to be killed, or nothing of it is left.
func (t *tree) watch(from *inbox) {
	var lease time.Duration // its end; 0: none
	for !t.reap() {
		wait := 10 * time.Second // for the signal of a child's end that came too early
		if t.handle < 0 {
			wait = 100 * time.Millisecond
		}
		if lease != 0 {
			wait = min(wait, lease-Monotonic())
		}
		if !from.await(t.handle, wait) {
			if lease != 0 && lease <= Monotonic() {
				return
			}
			continue
		}
		o, err := readOrder(from)
		switch {
		case err != nil || o.kind == orderKill:
			return
		case o.kind == orderTerminate:
			signalSession(os.Getpid(), syscall.SIGTERM)
		case o.kind == orderLease:
			lease = max(1, o.at)
		}
	}
}

// reap reaps processes that have ended. It reports true when none is left.
func (t *tree) reap() bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return true
		case pid == 0:
			if t.untold {
				report(t.agent, reportEnded, uint32(t.status))
				t.untold = false
			}
			return false
		case pid == t.command:
			t.status, t.untold = status, true
			t.forget()
		}
	}
}

// forget closes the handle of a command that has ended.
func (t *tree) forget() {
	if t.handle >= 0 {
		_ = syscall.Close(t.handle)
		t.handle = -1
	}
}

// reportEmpty returns false when the agent is gone.
func (t *tree) reportEmpty() bool {
	if t.untold {
		return report(t.agent, reportEndedEmpty, uint32(t.status))
	}
	return report(t.agent, reportEmpty, 0)
}

// end kills the rest until nothing is left. When a process dies, its children become the guard's, whatever their
// session or group.
func (t *tree) end() {
	began := time.Now()
	for wait := time.Millisecond; !t.reap(); wait = min(2*wait, 20*time.Millisecond) {
		t.group.kill()
		signalSession(os.Getpid(), syscall.SIGKILL)
		killBelow(os.Getpid())
		if time.Since(began) > leftLimit {
			wait = time.Second // for what cannot be killed
		}
		time.Sleep(wait)
	}
	t.group.remove()
}
