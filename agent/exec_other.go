//go:build !unix

package agent

import (
	"context"
	"os/exec"
	"time"
)

// runGroup runs a command; where there are no process groups only the command itself is killed when ctx ends.
func runGroup(_ context.Context, cmd *exec.Cmd) error {
	cmd.WaitDelay = execKillAfter + time.Second
	return cmd.Run()
}
