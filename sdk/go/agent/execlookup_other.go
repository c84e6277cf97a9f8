//go:build !unix

package agent

import "os/exec"

// find leaves the search for the command's program to exec.Command.
func find(cmd *exec.Cmd) error { return cmd.Err }
