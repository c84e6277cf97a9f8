//go:build !linux

package agent

import (
	"errors"
	"os/exec"
)

// endsProcessTrees reports whether no process of an exec task can outlive its attempt and its agent.
func endsProcessTrees() bool { return false }

// HideEnvironment keeps this process's secrets from other processes on Linux. Here it does nothing.
func HideEnvironment() {}

// endOfProcess translates the error of exec.Cmd into the end of a command.
func endOfProcess(err error) (commandEnd, error) {
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrWaitDelay): // it exited with 0, and a process that it left behind holds its output
		return commandEnd{}, nil
	case errors.As(err, &exit):
		return commandEnd{code: exit.ExitCode(), text: exit.String()}, nil
	}
	return commandEnd{}, err
}
