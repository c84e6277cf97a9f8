//go:build !unix

package cli

import (
	"errors"
	"os"
	"os/exec"
)

// replaceProcess runs the program, where no process can become another, and ends with its exit code.
func replaceProcess(program string, args, env []string) error {
	command := exec.Command(program, args[1:]...)
	command.Env, command.Stdin, command.Stdout, command.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	err := command.Run()
	var ended *exec.ExitError
	if err == nil || errors.As(err, &ended) {
		os.Exit(command.ProcessState.ExitCode())
	}
	return err
}
