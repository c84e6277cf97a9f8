package agent

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"mainstay.dev/sdk/agent/proctree"
	"mainstay.dev/sdk/api"
)

const (
	// guardIdle is how long a guard waits for its next command. To start one costs as much as several commands.
	guardIdle = 30 * time.Second
	// guardRead bounds what one guard reads of commands, in bytes: it grows with what it reads, as long as it is small.
	guardRead = 256 << 10
)

// guardProcess is a guard process as the agent has it. It guards one command at a time, and may have another when
// nothing of that is left.
type guardProcess struct {
	process *exec.Cmd
	socket  *os.File
	had     int         // bytes of commands
	idle    *time.Timer // ends it when it has waited for long enough
	room    [2][]byte   // for reading the output of its commands
}

// guards are this process's guards without a command.
var guards idleGuards

type idleGuards struct {
	mu   sync.Mutex
	list []*guardProcess
}

// take returns the guard that had a command last, or a new one.
func (i *idleGuards) take() (*guardProcess, error) {
	for {
		i.mu.Lock()
		last := len(i.list) - 1
		if last < 0 {
			i.mu.Unlock()
			return startGuard()
		}
		g := i.list[last]
		i.list = i.list[:last]
		i.mu.Unlock()
		g.idle.Stop()
		if g.waits() {
			_ = g.process.Process.Signal(proctree.AgentGone) // the command before may have stopped it
			return g, nil
		}
		_ = g.end()
	}
}

// waits reports whether a guard is there and has nothing to say. Without a command it says something only by its end.
func (g *guardProcess) waits() (is bool) {
	raw, err := g.socket.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		is = errors.Is(err, syscall.EAGAIN)
	})
	return is
}

// put keeps a guard without a command for the next one, or ends it.
func (i *idleGuards) put(g *guardProcess) {
	if g.had > guardRead {
		_ = g.end()
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.list = append(i.list, g)
	g.idle = time.AfterFunc(guardIdle, func() {
		if i.remove(g) {
			_ = g.end()
		}
	})
}

// remove removes a guard. It reports false when that has a command.
func (i *idleGuards) remove(g *guardProcess) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	at := slices.Index(i.list, g)
	if at >= 0 {
		i.list = slices.Delete(i.list, at, at+1)
	}
	return at >= 0
}

// startGuard starts a guard process.
func startGuard() (*guardProcess, error) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	_ = syscall.SetNonblock(ends[0], true) // so that closing it ends a reading
	g := &guardProcess{socket: os.NewFile(uintptr(ends[0]), "guard"), process: exec.Command(ownProgram),
		room: [2][]byte{make([]byte, pipeRoom), make([]byte, pipeRoom)}}
	theirs := os.NewFile(uintptr(ends[1]), "agent")
	defer func() { _ = theirs.Close() }()
	g.process.Args = []string{proctree.Name}
	g.process.Env = []string{"GOMAXPROCS=1"}
	if id := os.Getenv(api.EnvSpawnID); id != "" { // its spawner sees by it whether anything of the agent is left
		g.process.Env = append(g.process.Env, api.EnvSpawnID+"="+id)
	}
	g.process.ExtraFiles = []*os.File{theirs}
	g.process.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: proctree.AgentGone}
	if err := g.process.Start(); err != nil {
		_ = g.socket.Close()
		return nil, err
	}
	return g, nil
}

// send sends the message that starts a command, and what follows it. Errors do not matter: the guard has ended then,
// which its reports say.
func (g *guardProcess) send(start []byte, output [2]int) {
	g.had += len(start)
	_ = g.socket.SetWriteDeadline(time.Time{})
	_ = proctree.Send(g.socket, start, output)
}

// end ends a guard that has no command.
func (g *guardProcess) end() error {
	_ = g.socket.Close()
	_ = g.process.Process.Kill()
	return g.process.Wait()
}
