package bench

import (
	"bufio"
	"context"
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

	"github.com/prometheus/procfs"
)

// This file asks Linux and the Go runtime of processes what they use. It is Linux only.

// CPU is processor time.
type CPU struct {
	Server time.Duration // of the process with Temporal and the control plane
	All    time.Duration // of all processes that take part
	Busy   time.Duration // of all programs of the machine
}

// used is the processor time so far, with other processes that take part.
func (i *Installation) used(pids ...int) CPU {
	server := cpuTimes(i.plane.PID())
	return CPU{Server: server, All: server + cpuTimes(pids...), Busy: busyTime()}
}

func (c CPU) plus(d CPU) CPU { return CPU{c.Server + d.Server, c.All + d.All, c.Busy + d.Busy} }

func (c CPU) minus(d CPU) CPU { return CPU{c.Server - d.Server, c.All - d.All, c.Busy - d.Busy} }

// others is the share, in percent of the used processor time, of programs outside the measurement. With more than a few
// per cent, throughput means little.
func (c CPU) others() float64 {
	if c.Busy == 0 {
		return 0
	}
	return 100 * max(0, c.Busy-c.All).Seconds() / c.Busy.Seconds()
}

// cpuTimes adds up how much processor time processes have used so far, in user and kernel mode. One that has ended
// counts nothing.
func cpuTimes(pids ...int) time.Duration {
	var sum float64
	for _, pid := range pids {
		if stat, err := processStat(pid); err == nil {
			sum += stat.CPUTime()
		}
	}
	return inSeconds(sum)
}

// busyTime is how much processor time all programs of this machine have used since it was started, neither idle nor
// waiting for a disk; 0 when the system does not say.
func busyTime() time.Duration {
	var stat procfs.Stat
	system, err := procfs.NewDefaultFS()
	if err == nil {
		stat, err = system.Stat()
	}
	if err != nil {
		return 0
	}
	cpu := stat.CPUTotal
	return inSeconds(cpu.User + cpu.Nice + cpu.System + cpu.IRQ + cpu.SoftIRQ)
}

func inSeconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// memory is how much memory of a process is resident now, in bytes.
func memory(pid int) (int64, error) {
	stat, err := processStat(pid)
	if err != nil {
		return 0, fmt.Errorf("read a process's memory: %w", err)
	}
	return int64(stat.ResidentMemory()), nil
}

func processStat(pid int) (procfs.ProcStat, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return process.Stat()
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
	Memory  uint64  `json:"memory_bytes,omitempty"`
	Kernel  string  `json:"kernel,omitempty"`
	Go      string  `json:"go"`
	Version string  `json:"version"` // of Mainstay, by `make build` with its commit
	Date    string  `json:"date"`
	Load    float64 `json:"load_average_1m"` // before the run: other work on the machine
}

// thisMachine describes the machine and the measured program; facts that the system does not give stay empty.
func thisMachine(ctx context.Context, program string, now time.Time) (Machine, error) {
	m := Machine{Cores: runtime.NumCPU(), Date: now.Format(time.DateOnly)}
	says, err := exec.CommandContext(ctx, program, "version", "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(says, &m) // its version, and Go's
	}
	if err != nil {
		return m, fmt.Errorf("ask %s for its version: %w", program, err)
	}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = runtime.GOOS + " " + strings.TrimSpace(string(kernel))
	}
	system, err := procfs.NewDefaultFS()
	if err != nil {
		return m, err
	}
	if memory, err := system.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		m.Memory = *memory.MemTotalBytes
	}
	if load, err := system.LoadAvg(); err == nil {
		m.Load = load.Load1
	}
	return m, nil
}

// String is one line.
func (m Machine) String() string {
	return fmt.Sprintf("%d cores, %.0f GiB, %s, %s, mainstay %s, %s, load before the run %.2f",
		m.Cores, float64(m.Memory)/(1<<30), m.Kernel, m.Go, m.Version, m.Date, m.Load)
}
