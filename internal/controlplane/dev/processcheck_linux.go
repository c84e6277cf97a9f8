package dev

import (
	"bytes"
	"fmt"
	"os"
)

// runsAs reports whether a process lives and has these arguments. An ended process that nobody has waited for has none.
func runsAs(pid int, args []string) bool {
	if pid <= 0 {
		return false
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	words := bytes.Split(bytes.TrimSuffix(line, []byte{0}), []byte{0})
	if len(words) != len(args)+1 {
		return false
	}
	for i, arg := range args {
		if string(words[i+1]) != arg {
			return false
		}
	}
	return true
}
