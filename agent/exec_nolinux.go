//go:build !linux

package agent

import (
	"errors"
	"os/exec"
)

// endsProcessTrees reports whether no process of an exec task can outlive its attempt and its agent.
func endsProcessTrees() bool { return false }

// endOfProcess reads what exec.Cmd says of the end of a command.
func endOfProcess(err error) (commandEnd, error) {
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrWaitDelay): // it exited 0 and left something behind that holds its output
		return commandEnd{}, nil
	case errors.As(err, &exit):
		return commandEnd{code: exit.ExitCode(), text: exit.String()}, nil
	}
	return commandEnd{}, err
}
