//go:build unix

package connlimit

import "syscall"

// mostConnections leaves a quarter of the files that the process may open for its own work.
func mostConnections() int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return maxConnections
	}
	return int(min(files.Cur/4*3, maxConnections))
}
