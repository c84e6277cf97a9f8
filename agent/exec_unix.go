//go:build unix

package agent

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// runGroup runs a command in a process group of its own and ends the whole group when ctx ends.
func runGroup(ctx context.Context, cmd *exec.Cmd) error {
	// The kernel kills the command when the thread that started it ends (dieWithParent), so keep the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	cmd.WaitDelay = execKillAfter + time.Second // for what left the group and still holds the output
	var kill *time.Timer
	cmd.Cancel = func() error {
		first := syscall.SIGTERM
		if errors.Is(context.Cause(ctx), ErrLeaseExpired) {
			first = syscall.SIGKILL // another agent may start the same work any moment
		}
		group := -cmd.Process.Pid
		kill = time.AfterFunc(execKillAfter, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		return syscall.Kill(group, first)
	}
	err := cmd.Run()
	if kill != nil { // Run has seen Cancel return
		kill.Stop()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // members that closed the output and ignored SIGTERM
	}
	return err
}
