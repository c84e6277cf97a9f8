package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of processor time in /proc; Linux has shown 100 a second to programs for decades.
const clockTick = 10 * time.Millisecond

// CPUTime is how much processor time a process has used so far, in user and kernel mode. Linux only.
func CPUTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read a process's processor time: %w", err)
	}
	return parseCPUTime(string(stat))
}

// parseCPUTime reads the fields utime and stime of /proc/PID/stat. The name before them, in parentheses, may hold
// anything.
func parseCPUTime(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const utime, stime = 14 - 3, 15 - 3 // by proc(5), less pid, name and the index of the first
	if len(fields) <= stime {
		return 0, fmt.Errorf("/proc/PID/stat has %d fields after the name, too few", len(fields))
	}
	var sum time.Duration
	for _, field := range []string{fields[utime], fields[stime]} {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/PID/stat: %w", err)
		}
		sum += time.Duration(ticks) * clockTick
	}
	return sum, nil
}

// Memory is how much memory of a process is resident now, in bytes. Linux only.
func Memory(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read a process's memory: %w", err)
	}
	resident := kibibytes(string(status), "VmRSS:")
	if resident == 0 {
		return 0, fmt.Errorf("/proc/%d/status has no VmRSS", pid)
	}
	return resident, nil
}

// CPUTimes adds up the processor time of processes. One that has ended counts nothing.
func CPUTimes(pids ...int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		if used, err := CPUTime(pid); err == nil {
			sum += used
		}
	}
	return sum
}

// BusyTime is how much processor time all programs of this machine have used since it was started; 0 when the system
// does not tell.
func BusyTime() time.Duration {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return parseBusyTime(string(stat))
}

// parseBusyTime reads the first line of /proc/stat, "cpu user nice system idle iowait irq softirq …".
func parseBusyTime(stat string) time.Duration {
	first, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(first)
	const idle, iowait, softirq = 4, 5, 7
	if len(fields) <= softirq || fields[0] != "cpu" {
		return 0
	}
	var busy time.Duration
	for i, field := range fields[1 : softirq+1] {
		if i+1 == idle || i+1 == iowait {
			continue
		}
		if ticks, err := strconv.ParseInt(field, 10, 64); err == nil {
			busy += time.Duration(ticks) * clockTick
		}
	}
	return busy
}
