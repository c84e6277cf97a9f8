//go:build !unix

package agent

import (
	"context"
	"os/exec"
	"time"
)

// runTree runs a command; where there are no process groups only the command itself is killed when ctx ends.
func runTree(_ context.Context, cmd *exec.Cmd, task *Task, _ string) (commandEnd, error) {
	cmd.WaitDelay = task.stopGrace(nil) + time.Second
	return endOfProcess(cmd.Run())
}
