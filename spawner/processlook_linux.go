package spawner

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// alive reports whether the record's process lives: one with its number that carries the spawn's id in its environment. A
// process that has ended has no environment, even while nobody has waited for it.
func (r *record) alive() bool {
	if r.PID <= 0 {
		return false
	}
	return carries(r.PID, r.Spec.ID)
}

func carries(pid int, id string) bool {
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	return bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+EnvSpawnID+"="+id+"\x00"))
}

// findProcess looks for the process of a record whose number was not written; 0 when there is none. What the agent itself
// runs may carry its id too, but has another command line.
func findProcess(r record) int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	command := strings.Join(r.Command, "\x00") + "\x00"
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !carries(pid, r.Spec.ID) {
			continue
		}
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && string(line) == command {
			return pid
		}
	}
	return 0
}
