package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"mainstay.dev/sdk/agent/proctree"
	"mainstay.dev/sdk/api"
)

// ownProgram is this process's program, even after an upgrade has replaced its file.
const ownProgram = "/proc/self/exe"

// endsProcessTrees reports whether no process of an exec task can outlive its attempt and its agent.
func endsProcessTrees() bool {
	_, err := os.Stat(ownProgram)
	return err == nil
}

// runTree runs a command below a guard process (package proctree), and returns when nothing that it started is left.
// The guard removes the folder scratch if the agent ends before it.
func runTree(ctx context.Context, cmd *exec.Cmd, task *Task, scratch string) (commandEnd, error) {
	if err := errors.Join(cmd.Err, ctx.Err()); err != nil {
		return commandEnd{}, err
	}
	command := proctree.Command{Path: cmd.Path, Dir: cmd.Dir, Scratch: scratch, Args: cmd.Args,
		Env: cmd.Environ()}
	start, err := command.Start()
	if err != nil {
		return commandEnd{}, &fs.PathError{Op: "fork/exec", Path: cmd.Path, Err: err}
	}
	g, err := guardFor(cmd)
	if err != nil {
		return commandEnd{}, fmt.Errorf("the guard process of the command cannot be started: %w", err)
	}
	if task.attempt != nil {
		task.attempt.guard.Store(int32(g.process.Process.Pid)) //nolint:gosec // the kernel's have 22 bits
	}
	g.task, g.lease = task, leaseOf(task)
	g.send(append(start, g.leaseOrder()...), g.pipes.writers)
	closeAll(g.pipes.writers[:])
	go g.readOutput()
	go g.readReports()
	end, err := g.watch(ctx)
	if g.failed != 0 {
		return end, &fs.PathError{Op: "fork/exec", Path: cmd.Path, Err: g.failed}
	}
	return end, err
}

// guardLimit is how long a guard has to kill its tree before the agent kills both; leaseLimit, when the lease has run
// out. It also bounds an order.
const (
	guardLimit = time.Second
	leaseLimit = 100 * time.Millisecond
)

// leftLimit is how long processes that a command has left behind may hold its output.
const leftLimit = 6 * time.Second

// killAgain spaces the tries to kill what lives on.
const killAgain = 5 * time.Second

// guarded is a command below its guard process as the agent has it.
type guarded struct {
	*guardProcess
	task     *Task
	lease    *lease
	leaseEnd <-chan time.Time     // of the newest lease that the guard knows
	reports  chan proctree.Report // closed when the guard has ended, or has nothing of the command any more
	output   chan struct{}        // closed when nobody can write to the command's output any more
	pipes    *pipes
	failed   syscall.Errno // why the command could not be started
}

// guardFor finds a guard for a command, whose output goes to cmd's.
func guardFor(cmd *exec.Cmd) (*guarded, error) {
	process, err := guards.take()
	if err != nil {
		return nil, err
	}
	p, err := newPipes(cmd.Stdout, cmd.Stderr, process.room)
	if err != nil {
		guards.put(process)
		return nil, err
	}
	return &guarded{guardProcess: process, pipes: p,
		reports: make(chan proctree.Report), output: make(chan struct{})}, nil
}

func (g *guarded) readOutput() {
	g.pipes.copyAll()
	close(g.output)
}

func (g *guarded) readReports() {
	defer close(g.reports)
	for {
		r, err := proctree.ReadReport(g.socket)
		if err != nil {
			return
		}
		if g.reports <- r; r.Empty {
			return
		}
	}
}

// order sends the guard a short message, which is written as a whole or not at all. Errors do not matter: either the
// guard has ended, or it is stopped with a full socket, and the agent does its work.
func (g *guardProcess) order(message []byte) {
	_ = g.socket.SetWriteDeadline(time.Now().Add(leaseLimit))
	_, _ = g.socket.Write(message)
}

// watch follows the command to its end. When ctx ends, the command gets SIGTERM and its tree SIGKILL after a while, or
// at once if the lease has run out. When the command has ended, the rest of the tree is killed once nothing holds its
// output, or after a while.
func (g *guarded) watch(ctx context.Context) (commandEnd, error) {
	defer g.pipes.close()
	var end commandEnd
	var kill, overdue <-chan time.Time
	told, output := ctx.Done(), g.output
	ended, empty, stopped := false, false, false
	killWithin := func(d time.Duration) {
		g.order(proctree.Kill())
		if overdue == nil {
			overdue = time.After(d)
		}
	}
	for !empty {
		select {
		case <-told:
			told, stopped = nil, true
			if errors.Is(context.Cause(ctx), ErrLeaseExpired) {
				killWithin(leaseLimit) // another agent may start the same work at any moment
				continue
			}
			g.order(proctree.Terminate())
			kill = time.After(g.task.stopGrace(context.Cause(ctx)))
		case <-g.leaseEnd: // perhaps while a cancelled command still has its grace
			killWithin(leaseLimit)
		case <-kill:
			end.left = ended && !stopped
			killWithin(guardLimit)
		case <-overdue: // the command may have stopped its guard
			if proctree.KillBelow(g.process.Process.Pid) && g.task.livesOn() {
				overdue = time.After(killAgain) // the guard keeps it together meanwhile
				continue
			}
			_ = g.process.Process.Kill()
		case <-g.lease.renewed():
			g.order(g.leaseOrder())
		case <-output:
			output = nil
		case r, open := <-g.reports:
			switch {
			case !open:
				if err := g.died(); !ended || errors.Is(err, errLivesOn) {
					return end, err
				}
				return end, nil
			case r.Ended:
				end, ended = endOfCommand(r.Status), true
				if kill == nil {
					kill = time.After(leftLimit)
				}
			case r.Failed != 0:
				g.failed = r.Failed
			}
			empty = r.Empty
		}
		if ended && output == nil && !stopped {
			killWithin(guardLimit) // what it left in the background
		}
	}
	g.awaitOutput()
	guards.put(g.guardProcess)
	return end, nil
}

// died handles a guard that was killed: its command died with it, and died kills the rest of the tree. An attempt goes
// on while something of that lives.
func (g *guarded) died() error {
	left := proctree.KillLeft(g.process.Process.Pid)
	for left && g.task.livesOn() {
		time.Sleep(killAgain)
		left = proctree.KillLeft(g.process.Process.Pid)
	}
	err := g.end()
	g.awaitOutput()
	if left {
		return fmt.Errorf("the command's guard process was ended (%w): %w", err, errLivesOn)
	}
	return fmt.Errorf(
		"the command's guard process was ended by something else (%w); the command was killed with all that it had started",
		err,
	)
}

// awaitOutput waits until the output is read. It gives up on output that a process outside of the tree holds open.
func (g *guarded) awaitOutput() {
	select {
	case <-g.output:
	case <-time.After(time.Second):
		g.pipes.close()
		<-g.output
	}
}

func endOfCommand(status syscall.WaitStatus) commandEnd {
	switch {
	case status.Exited():
		return commandEnd{code: status.ExitStatus(), text: fmt.Sprintf("exit status %d", status.ExitStatus())}
	case status.CoreDump():
		return commandEnd{code: -1, text: "signal: " + status.Signal().String() + " (core dumped)"}
	}
	return commandEnd{code: -1, text: "signal: " + status.Signal().String()}
}

// lease is the lease that a command runs under; nil: none.
type lease struct {
	run *run
	// news is closed when the lease was renewed since its end was last read.
	news <-chan struct{}
}

func leaseOf(task *Task) *lease {
	if task.attempt == nil || task.RetrySafety != api.Fenced {
		return nil
	}
	return &lease{run: task.attempt.run}
}

func (l *lease) renewed() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.news
}

// leaseOrder orders the guard to kill at the lease's end, which works even while this process is frozen; empty: no
// lease.
func (g *guarded) leaseOrder() []byte {
	if g.lease == nil {
		return nil
	}
	now := proctree.Monotonic() // read first: freezing here must not lengthen the lease
	end, news := g.lease.run.leaseEnd()
	g.lease.news = news
	if end.IsZero() {
		return nil
	}
	g.leaseEnd = time.After(time.Until(end))
	return proctree.Lease(now + time.Until(end))
}
