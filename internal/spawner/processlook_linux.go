package spawner

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// alive reports whether the record's process lives: the one with its number that began at the same tick, so that a
// number that was given anew does not count. A process that has ended and that nobody has waited for is not alive.
func (r *record) alive() bool {
	ticks := beginning(r.PID)
	return ticks != 0 && ticks == r.Ticks
}

// beginning is when a living process began, in ticks since the machine did; 0 when it does not live.
func beginning(pid int) uint64 {
	if pid <= 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field, a name in brackets, may hold spaces; the state is the third and the beginning the 22nd.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0
	}
	ticks, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0
	}
	return ticks
}

// machineMemory is this machine's memory in bytes; 0 when it is not known.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// carries reports whether a process has a spawn's id in its environment.
func carries(pid int, id string) bool {
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	return bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+EnvSpawnID+"="+id+"\x00"))
}

// anyCarries reports whether any process has a spawn's id in its environment: the agent's, and what it starts, such as
// the guards of its commands, which end after these.
func anyCarries(id string) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && carries(pid, id) {
			return true
		}
	}
	return false
}

// findProcess looks for the process of a record whose number was not written; 0 when there is none. What the agent
// itself starts carries its id too, and for an instant its command line, but does not lead its process group.
func findProcess(r record) int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	command := strings.Join(r.Command, "\x00") + "\x00"
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if group, groupErr := unix.Getpgid(pid); err != nil || groupErr != nil || group != pid ||
			!carries(pid, r.Spec.ID) {
			continue
		}
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && string(line) == command {
			return pid
		}
	}
	return 0
}
