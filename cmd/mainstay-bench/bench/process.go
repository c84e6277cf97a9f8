package bench

import (
	"bufio"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// This file asks Linux and the Go runtime of processes what they use. It is Linux only.

// clockTick is the unit of processor time in /proc; Linux has shown 100 a second to programs for decades.
const clockTick = 10 * time.Millisecond

// statFields are the fields of /proc/PID/stat from the state on. The name before them, in parentheses, may hold
// anything.
func statFields(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// cpuTime is how much processor time a process has used so far, in user and kernel mode.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read a process's processor time: %w", err)
	}
	return parseCPUTime(string(stat))
}

func parseCPUTime(stat string) (time.Duration, error) {
	fields := statFields(stat)
	const utime, stime = 14 - 3, 15 - 3 // by proc(5), less pid, name and the index of the first
	if len(fields) <= stime {
		return 0, fmt.Errorf("/proc/PID/stat has %d fields after the name, too few", len(fields))
	}
	return ticks(fields[utime], fields[stime])
}

// ticks adds up fields of processor time.
func ticks(fields ...string) (sum time.Duration, err error) {
	for _, field := range fields {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("a file in /proc: %w", err)
		}
		sum += time.Duration(n) * clockTick
	}
	return sum, nil
}

// cpuTimes adds up the processor time of processes. One that has ended counts nothing.
func cpuTimes(pids ...int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		if used, err := cpuTime(pid); err == nil {
			sum += used
		}
	}
	return sum
}

// busyTime is how much processor time all programs of this machine have used since it was started; 0 when the system
// does not tell.
func busyTime() time.Duration {
	stat, _ := os.ReadFile("/proc/stat")
	return parseBusyTime(string(stat))
}

// parseBusyTime reads the first line of /proc/stat, "cpu user nice system idle iowait irq softirq …".
func parseBusyTime(stat string) time.Duration {
	first, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(first)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0
	}
	busy, _ := ticks(append(fields[1:4:4], fields[6:8]...)...) // neither idle nor waiting for a disk
	return busy
}

// memory is how much memory of a process is resident now, in bytes.
func memory(pid int) (int64, error) {
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

// ownMemory is this process's resident memory and Go heap, in bytes, after a collection.
func ownMemory() (resident, heap int64, err error) {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	resident, err = memory(os.Getpid())
	return resident, int64(stats.HeapAlloc), err //nolint:gosec // no heap has 2⁶³ bytes
}

const (
	heapMetric        = "go_memstats_heap_alloc_bytes"
	collectionsMetric = "go_gc_duration_seconds_count"
	// collectLimit bounds waiting for a collection; the runtime forces one after two idle minutes.
	collectLimit = 130 * time.Second
	// sweepTime is how long the heap's size is watched after a collection, while dead objects are swept.
	sweepTime = 300 * time.Millisecond
)

// processMemory is a control plane process's resident memory and Go heap, in bytes. It asks for metrics, which makes
// garbage, until the process has collected twice: what died before is gone then.
func processMemory(ctx context.Context, url string, pid int) (resident, heap int64, err error) {
	if resident, err = memory(pid); err != nil {
		return 0, 0, err
	}
	first, err := metric(ctx, url, collectionsMetric, "")
	if err != nil {
		return 0, 0, err
	}
	if err := eventually(ctx, "two garbage collections", collectLimit, time.Millisecond,
		func(ctx context.Context) (bool, error) {
			collections, err := metric(ctx, url, collectionsMetric, "")
			return collections >= first+2, err
		}); err != nil {
		return 0, 0, err
	}
	for until := time.Now().Add(sweepTime); time.Now().Before(until); {
		bytes, err := metric(ctx, url, heapMetric, "")
		if err != nil {
			return 0, 0, err
		}
		if heap == 0 || int64(bytes) < heap {
			heap = int64(bytes)
		}
		if err := pause(ctx, sweepTime/10); err != nil {
			return 0, 0, err
		}
	}
	return resident, heap, nil
}

// metric reads /metrics and adds up the samples of a metric that have a label.
func metric(ctx context.Context, url, name, label string) (float64, error) {
	text, err := ask(ctx, url+"/metrics")
	if err != nil {
		return 0, fmt.Errorf("read the hub's metrics: %w", err)
	}
	defer func() { _ = text.Close() }()
	return sumMetric(text, name, label)
}

func sumMetric(text io.Reader, name, label string) (float64, error) {
	sum, found := 0.0, false
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		sample, value := line[:strings.LastIndexByte(line, ' ')+1], line[strings.LastIndexByte(line, ' ')+1:]
		if base, _, _ := strings.Cut(strings.TrimSpace(sample), "{"); base != name || !strings.Contains(sample, label) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum, found = sum+n, true
	}
	if !found {
		return 0, errors.Join(lines.Err(), fmt.Errorf("the hub has no metric %s", name))
	}
	return sum, lines.Err()
}

// Machine is what numbers depend on.
type Machine struct {
	Cores   int     `json:"cores"`
	Memory  int64   `json:"memory_bytes,omitempty"`
	Kernel  string  `json:"kernel,omitempty"`
	Go      string  `json:"go"`
	Version string  `json:"version"`          // of Mainstay
	Commit  string  `json:"commit,omitempty"` // of the build, if it noted it, with "-dirty" if there were changes
	Date    string  `json:"date"`
	Load    float64 `json:"load_average_1m"` // before the run: other work on the machine
}

// thisMachine describes the machine and the program that is measured; what the system does not tell stays empty.
func thisMachine(ctx context.Context, program string, now time.Time) (Machine, error) {
	m := Machine{Cores: runtime.NumCPU(), Commit: builtFrom(program), Date: now.Format(time.DateOnly)}
	says, err := exec.CommandContext(ctx, program, "version", "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(says, &m) // its version, and Go's
	}
	if err != nil {
		return m, fmt.Errorf("ask %s for its version: %w", program, err)
	}
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.Memory = kibibytes(string(data), "MemTotal:")
	}
	if data, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = runtime.GOOS + " " + strings.TrimSpace(string(data))
	}
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(data), " ")
		m.Load, _ = strconv.ParseFloat(first, 64)
	}
	return m, nil
}

// builtFrom is the commit that the Go command noted when it built a program.
func builtFrom(program string) string {
	const short = 12
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return ""
	}
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(short, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + dirty
}

// kibibytes reads a line such as "MemTotal: 24 kB" of a file in /proc, in bytes; 0 when it is not there.
func kibibytes(text, name string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}

// String is one line.
func (m Machine) String() string {
	version := m.Version
	if m.Commit != "" {
		version += " (commit " + m.Commit + ")"
	}
	return fmt.Sprintf("%d cores, %.0f GiB, %s, %s, mainstay %s, %s, load before the run %.2f",
		m.Cores, float64(m.Memory)/(1<<30), m.Kernel, m.Go, version, m.Date, m.Load)
}
