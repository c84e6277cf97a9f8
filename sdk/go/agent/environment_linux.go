package agent

import (
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"mainstay.dev/sdk/api"
)

// HideEnvironment keeps this process's secrets from the commands that it runs, and from other processes of its user.
// They can then read neither its memory nor, in /proc, the variables that it was started with; except for root, who can
// still read the memory. They do not inherit the files that it was started with either. The process itself sees its
// environment as before. Programs with an agent should call it first in main. It skips what the system does not allow.
func HideEnvironment() {
	eraseEnvironment()
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// eraseEnvironment overwrites the values of variables where the kernel put them, which is what /proc/PID/environ shows.
// Plain ones stay, and a spawned agent's id, by which its spawner finds it. Go's runtime has copies.
func eraseEnvironment() {
	block, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return
	}
	begin := environmentAddress()
	for at := 0; at < len(block); {
		entry, _, _ := strings.Cut(string(block[at:]), "\x00")
		if name, value, _ := strings.Cut(entry, "="); value != "" && !plain(entry, []string{api.EnvSpawnID}) {
			erase(begin+uintptr(at+len(name)+1), len(value))
		}
		at += len(entry) + 1
	}
}

// erase writes zeros over n bytes of this process's memory.
func erase(address uintptr, n int) {
	if address < uintptr(os.Getpagesize()) {
		return // it is not known
	}
	zeros := make([]byte, n)
	local := []unix.Iovec{{Base: &zeros[0]}}
	local[0].SetLen(n)
	_, _ = unix.ProcessVMWritev(os.Getpid(), local, []unix.RemoteIovec{{Base: address, Len: n}}, 0)
}

// environmentAddress is where the kernel put the environment; 0: it is not known.
func environmentAddress() uintptr {
	const field = 50 - 3 // env_start of proc(5), counted from the state on
	stat, _ := os.ReadFile("/proc/self/stat")
	_, after, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(after)
	if len(fields) <= field {
		return 0
	}
	address, _ := strconv.ParseUint(fields[field], 10, 64)
	return uintptr(address)
}
