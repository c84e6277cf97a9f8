package agent

import (
	"os"
	"syscall"
)

func readHost() (stat, meminfo []byte) {
	stat, _ = os.ReadFile("/proc/stat")
	meminfo, _ = os.ReadFile("/proc/meminfo")
	return stat, meminfo
}

// diskUse is the use of the file system of the working directory, in blocks, as an unprivileged process sees it.
func diskUse() (used, total uint64, ok bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(".", &s) != nil || s.Blocks < s.Bfree {
		return 0, 0, false
	}
	used = s.Blocks - s.Bfree
	return used, used + s.Bavail, true
}
