package agent

import (
	"bytes"
	"math"
	"strconv"
	"sync"
	"time"

	"mainstay.dev/sdk/protocol"
)

// metricsEvery is the greatest age of a sample.
const metricsEvery = time.Second

// hostMetrics samples the host's load. On systems other than Linux it stays unknown.
type hostMetrics struct {
	mu        sync.Mutex
	sampledAt time.Time
	busy, all uint64
	last      protocol.Metrics
}

func (m *hostMetrics) read() protocol.Metrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.sampledAt.IsZero() && time.Since(m.sampledAt) < metricsEvery {
		return m.last
	}
	m.sampledAt = time.Now()
	stat, meminfo := readHost()
	if busy, all, ok := parseCPU(stat); ok {
		if m.all > 0 && all > m.all && busy >= m.busy {
			m.last.CPUPercent = new(percent(busy-m.busy, all-m.all))
		}
		m.busy, m.all = busy, all
	}
	if used, total, ok := parseMemory(meminfo); ok {
		m.last.MemoryPercent = new(percent(used, total))
	}
	if used, total, ok := diskUse(); ok {
		m.last.DiskPercent = new(percent(used, total))
	}
	return m.last
}

// parseCPU reads the first line of /proc/stat: ticks that were busy, and all ticks, since boot.
func parseCPU(stat []byte) (busy, all uint64, ok bool) {
	line, _, _ := bytes.Cut(stat, []byte{'\n'})
	fields := bytes.Fields(line)
	if len(fields) < 6 || string(fields[0]) != "cpu" {
		return 0, 0, false
	}
	const idle, iowait, steal = 3, 4, 7 // guest times after steal are already part of user and nice
	for i, f := range fields[1:min(len(fields), steal+2)] {
		n, err := strconv.ParseUint(string(f), 10, 64)
		if err != nil {
			return 0, 0, false
		}
		all += n
		if i != idle && i != iowait {
			busy += n
		}
	}
	return busy, all, true
}

// parseMemory reads /proc/meminfo, in kB.
func parseMemory(meminfo []byte) (used, total uint64, ok bool) {
	var available uint64
	var haveAvailable bool
	for line := range bytes.Lines(meminfo) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, err := strconv.ParseUint(string(fields[1]), 10, 64)
		if err != nil {
			continue
		}
		switch string(fields[0]) {
		case "MemTotal:":
			total = n
		case "MemAvailable:":
			available, haveAvailable = n, true
		}
	}
	if total == 0 || !haveAvailable || available > total {
		return 0, 0, false
	}
	return total - available, total, true
}

// percent is part of whole, 0 to 100, to a tenth.
func percent(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return min(100, math.Round(1000*float64(part)/float64(whole))/10)
}
