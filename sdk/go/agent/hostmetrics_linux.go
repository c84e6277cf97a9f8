package agent

import (
	"bytes"
	"os"
	"strconv"
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

// diskFree is how many bytes the file system of the working directory has left.
func diskFree() uint64 {
	var s syscall.Statfs_t
	if syscall.Statfs(".", &s) != nil {
		return 0
	}
	return s.Bavail * uint64(s.Bsize)
}

// memoryLimit is the limit of the process's control group, in bytes; ok is false where there is none.
func memoryLimit() (limit uint64, ok bool) {
	text, _ := os.ReadFile("/sys/fs/cgroup/memory.max")
	limit, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	return limit, err == nil
}
