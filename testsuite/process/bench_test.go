package process

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/cmd/mainstay-bench/bench"
	"mainstay.dev/mainstay/testsuite/slow"
)

// startBench runs a benchmark, with a folder for temporary files.
func startBench(t *testing.T, temporary string, args ...string) *program {
	t.Helper()
	path, err := benchmarks()
	require.NoError(t, err)
	p := launch(t, []string{"TMPDIR=" + temporary}, path, append(args, "-o", "json")...)
	t.Cleanup(func() { p.end(t) })
	return p
}

// The queue's benchmark runs, small, and leaves nothing behind. Its numbers mean nothing here.
func TestBenchQueueInSmall(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	temporary := t.TempDir()
	p := startBench(t, temporary, "queue", "--depth", "40", "--slots", "8")
	require.Equal(t, 0, p.exit(t), "%s", &p.stderr)
	var report struct {
		Machine bench.Machine `json:"machine"`
		bench.Depth
	}
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &report), "%s", &p.stdout)
	require.Positive(t, report.Machine.Cores)
	for _, side := range []bench.DepthSide{report.Bare, report.Mainstay} {
		require.Positive(t, side.SubmittedPerSecond)
		require.Positive(t, side.QueuedPerSecond)
		require.Positive(t, side.DrainedPerSecond)
		require.Len(t, side.Memory, 4)
		for _, m := range side.Memory {
			require.Positive(t, m.Resident)
			require.Positive(t, m.Heap)
			require.Positive(t, m.Temporal)
		}
	}
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
}

// What a task costs beside bare Temporal is checked in processor time, which other programs of the machine hardly
// change. It is about 1.15 times bare Temporal's. Few tasks vary more: with 100 a round it was 1.63 once.
func TestBenchThroughputInSmall(t *testing.T) {
	slow.Test(t)
	p := startBench(t, t.TempDir(), "throughput", "--rounds", "2", "--tasks", "200")
	require.Equal(t, 0, p.exit(t), "%s", &p.stderr)
	var report struct {
		Runs []struct {
			Bare, Mainstay struct {
				PerSecond []float64 `json:"per_second"`
				CPU       float64   `json:"all_cpu_ms_each"`
			}
			Stock struct {
				PerSecond []float64 `json:"per_second"`
			} `json:"bare_on_stock_database"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &report), "%s", &p.stdout)
	require.Len(t, report.Runs, 1)
	run := report.Runs[0]
	for _, rounds := range [][]float64{run.Bare.PerSecond, run.Mainstay.PerSecond, run.Stock.PerSecond} {
		require.Len(t, rounds, 2)
		require.Positive(t, rounds[0])
	}
	require.Less(t, run.Mainstay.CPU/run.Bare.CPU, 2.0, "processor time of a task beside bare Temporal")
}

// An element of an array is to cost a fiftieth of a task. What it costs is processor time, as above. Commands are to
// take twice as long as by xargs; what is checked leaves time for the array's own beginning and end.
func TestBenchArraysInSmall(t *testing.T) {
	slow.Test(t)
	p := startBench(t, t.TempDir(), "arrays", "--rounds", "1", "--tasks", "60",
		"--clients", "4", "--elements", "2000", "--commands", "600", "--large", "200", "--small", "20")
	require.Equal(t, 0, p.exit(t), "%s", &p.stderr)
	var report struct {
		Tasks struct {
			CPU float64 `json:"server_cpu_ms_each"`
		} `json:"single_tasks"`
		Elements struct {
			CPU float64 `json:"server_cpu_ms_each"`
		}
		Commands struct {
			PerSecond []float64 `json:"per_second"`
		}
		Xargs struct {
			PerSecond []float64 `json:"per_second"`
		} `json:"commands_by_xargs"`
	}
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &report), "%s", &p.stdout)
	require.Positive(t, report.Elements.CPU)
	require.Less(t, report.Elements.CPU, report.Tasks.CPU/10, "processor time of an element beside a task's")
	require.Less(t, report.Xargs.PerSecond[0]/report.Commands.PerSecond[0], 4.0, "the time of commands beside xargs")
}

// An agent is to cost 150 KiB of memory and, while it is idle, no history; none is given up when the control plane
// dies.
func TestBenchFleetInSmall(t *testing.T) {
	slow.Test(t)
	p := startBench(t, t.TempDir(), "fleet", "--agents", "500", "--for", "5s")
	require.Equal(t, 0, p.exit(t), "%s", &p.stderr)
	var report bench.Fleet
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &report), "%s", &p.stdout)
	require.Equal(t, 500, report.Agents)
	require.Less(t, report.Heap, int64(300<<10), "bytes of heap for an agent")
	require.Zero(t, report.Events, "events of history that the idle fleet wrote")
	require.Zero(t, report.GivenUp)
}

// Work of a killed agent is to begin elsewhere within a quarter of a second, and of one whose cable is pulled within
// four seconds. What is checked leaves time for a busy machine; others take half a minute.
func TestBenchFailoverInSmall(t *testing.T) {
	slow.Test(t)
	for fault, c := range map[string]struct {
		count string // the flag that says how often
		times int
		limit float64 // milliseconds from the fault to the begin elsewhere, half of the times
	}{
		"kill": {"--kills", 5, 5000},
		"host": {"--hosts", 2, 15_000},
	} {
		t.Run(fault, func(t *testing.T) {
			if _, err := exec.LookPath("ip"); fault == "host" && (err != nil || os.Geteuid() != 0) {
				t.Skip("no cable can be pulled: it needs root, and ip in the PATH (Debian: iproute2)")
			}
			p := startBench(t, t.TempDir(), "failover", "--only", fault, "--agents",
				"5", c.count, strconv.Itoa(c.times))
			require.Equal(t, 0, p.exit(t), "%s", &p.stderr)
			var report struct {
				Faults []struct {
					Name  string
					Moved int     `json:"tasks_moved"`
					P50   float64 `json:"p50_ms"`
				}
			}
			require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &report), "%s", &p.stdout)
			require.Len(t, report.Faults, 1)
			require.Equal(t, fault, report.Faults[0].Name)
			require.GreaterOrEqual(t, report.Faults[0].Moved, c.times)
			require.Less(t, report.Faults[0].P50, c.limit)
		})
	}
}
