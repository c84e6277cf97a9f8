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
	group   cgroup
}

// guard starts the agent's command once everything is set up, and returns when nothing of its tree is left. below is
// the folder of the cgroup in which to make the command's own, or "".
func guard(agent *os.File, below string) {
	syscall.CloseOnExec(Socket)
	const setChildSubreaper = 36
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
		report(agent, reportFailed, uint32(errno))
		report(agent, reportEmpty, 0)
		return
	}
	// It stays dumpable: its spawner reads its environment to see whether anything of the agent is left.
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	keepOn()
	command, err := readCommand(agent)
	if err != nil {
		return // the agent ended before it sent a command
	}
	orders := make(chan order)
	go readOrders(agent, orders)
	t := &tree{agent: agent}
	if errno := t.start(&command, makeCgroup(below, os.Getpid())); errno != 0 {
		t.group.remove()
		report(agent, reportFailed, uint32(errno))
		report(agent, reportEmpty, 0)
		return
	}
	t.watch(orders, children)
	t.end()
	if !report(agent, reportEmpty, 0) && command.Scratch != "" {
		_ = os.RemoveAll(command.Scratch)
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

// start starts the command in a process group of its own, and in a cgroup of its own where that is possible.
func (t *tree) start(c *Command, group cgroup) syscall.Errno {
	attr := &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: []uintptr{0, 1, 2},
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
	// The output belongs to the command: the agent reads it until no process holds it.
	_ = syscall.Dup3(0, 1, 0)
	_ = syscall.Dup3(0, 2, 0)
	if errno, is := err.(syscall.Errno); is { //nolint:errorlint // ForkExec does not wrap
		return errno
	}
	if err != nil {
		return syscall.EINVAL
	}
	return 0
}

// watch follows the agent's orders until the tree is to be killed, or nothing of it is left.
func (t *tree) watch(orders <-chan order, children <-chan os.Signal) {
	var lease <-chan time.Time
	for {
		select {
		case o, open := <-orders:
			switch {
			case !open || o.kind == orderKill:
				return
			case o.kind == orderTerminate:
				signalSession(os.Getpid(), syscall.SIGTERM)
			case o.kind == orderLease:
				lease = time.After(o.at - Monotonic())
			}
		case <-lease:
			return
		case <-children:
			if t.reap() {
				return
			}
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
			return false
		case pid == t.command:
			report(t.agent, reportEnded, uint32(status))
		}
	}
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
