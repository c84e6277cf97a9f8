//go:build unix && !linux

package agent

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"
)

// runTree runs a command in a process group of its own and ends the whole group when ctx ends.
func runTree(ctx context.Context, cmd *exec.Cmd, task *Task, _ string) (commandEnd, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = task.stopGrace(nil) + time.Second // for processes that left the group and still hold the output
	var kill *time.Timer
	cmd.Cancel = func() error {
		first := syscall.SIGTERM
		if errors.Is(context.Cause(ctx), ErrLeaseExpired) {
			first = syscall.SIGKILL // another agent may start the same work at any moment
		}
		group := -cmd.Process.Pid
		kill = time.AfterFunc(task.stopGrace(context.Cause(ctx)), func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		return syscall.Kill(group, first)
	}
	err := cmd.Run()
	if kill != nil { // Run waits for Cancel's return
		kill.Stop()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // members that closed the output and ignored SIGTERM
	}
	return endOfProcess(err)
}
