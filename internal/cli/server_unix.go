//go:build unix

package cli

import "syscall"

// replaceProcess returns only if it fails.
func replaceProcess(program string, args, env []string) error {
	return syscall.Exec(program, args, env)
}
