package bench

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Machine is what numbers depend on.
type Machine struct {
	Cores   int     `json:"cores"`
	Memory  int64   `json:"memory_bytes,omitempty"`
	Kernel  string  `json:"kernel,omitempty"`
	Go      string  `json:"go"`
	Version string  `json:"version"`          // of Mainstay
	Commit  string  `json:"commit,omitempty"` // that it was built from, with "-dirty" if there were changes; empty where the build did not note it
	Date    string  `json:"date"`
	Load    float64 `json:"load_average_1m"` // before the run: other work on the machine
}

// thisMachine describes the machine; what the system does not tell stays empty.
func thisMachine(version string, now time.Time) Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Version: version, Commit: builtFrom(),
		Date: now.Format(time.DateOnly)}
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
	return m
}

// builtFrom is the commit that the Go command noted when it built this program.
func builtFrom() string {
	const short = 12
	info, ok := debug.ReadBuildInfo()
	if !ok {
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
