package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJudgeOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		began                         []int
		slots                         int
		overtaking, inversions, worst int
	}{
		"none":                                  {nil, 4, 0, 0, 0},
		"in order":                              {[]int{1, 1, 2, 3, 3, 5}, 1, 0, 0, 0},
		"two slots change places":               {[]int{2, 1, 2}, 2, 1, 0, 1},
		"with one slot that is an inversion":    {[]int{2, 1, 2}, 1, 1, 1, 1},
		"four slots on their way together":      {[]int{1, 5, 1, 1, 1, 5}, 4, 1, 0, 3},
		"one more than the slots":               {[]int{5, 1, 1, 1, 1, 5}, 4, 1, 1, 4},
		"backwards":                             {[]int{5, 4, 3, 2, 1}, 2, 4, 3, 4},
		"equal classes do not overtake":         {[]int{3, 3, 3, 3}, 1, 0, 0, 0},
		"the higher class came last, as a rule": {[]int{4, 4, 4, 1}, 1, 3, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := judgeOrder(test.began, test.slots)
			require.Equal(t, []int{test.overtaking, test.inversions, test.worst},
				[]int{o.Overtaking, o.Inversions, o.Worst})
			require.Equal(t, len(test.began), o.Tasks)
		})
	}
	require.Equal(t, []Class{{Priority: 1, Tasks: 2, First: 1, Last: 3, Mean: 2},
		{Priority: 4, Tasks: 1, First: 2, Last: 2, Mean: 2}}, judgeOrder([]int{1, 4, 1}, 2).Classes)
}

func TestJudgeFairness(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		began            string // b and s
		bigWeight        int
		small            int
		share, fair      float64
		first, last, run int
	}{
		"in turns":            {"bsbsbsbbbb", 1, 3, 0.5, 0.5, 2, 6, 1},
		"as they were queued": {"bbbbbbbsss", 1, 3, 0, 0.5, 8, 10, 0},
		"three to one":        {"bbbsbbbsbb", 3, 2, 0.25, 0.25, 4, 8, 3},
		"what comes before and after its tasks is no run": {"bbsbsbbbbb", 1, 2, 0.25, 0.5, 3, 5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := make([]string, len(test.began))
			for i, c := range test.began {
				began[i] = map[rune]string{'b': bigTenant, 's': smallTenant}[c]
			}
			f := Fairness{BigWeight: test.bigWeight, SmallWeight: 1, Small: test.small}
			f.judge(began)
			require.Equal(t, 2*test.small, f.Window)
			require.InDelta(t, test.share, f.Share, 1e-9)
			require.InDelta(t, test.fair, f.Fair, 1e-9)
			require.Equal(t, []int{test.first, test.last, test.run}, []int{f.First, f.Last, f.Run})
		})
	}
}

func TestJudgeDispatch(t *testing.T) {
	t.Parallel()
	base := time.Unix(100, 0)
	at := func(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }
	var side DispatchSide
	side.judge([]dispatched{{at(0), at(4), at(10)}, {at(100), at(108), at(106)},
		{at(200), at(201), at(221)}})
	require.Equal(t, Times{Count: 3, P50: 6, P99: 20, Max: 20}, side.Acknowledged)
	require.Equal(t, Times{Count: 3, P50: 10, P99: 21, Max: 21}, side.Submitted)
	require.Equal(t, 1, side.Early, "it began before its acknowledgement was there")
}

func TestDispatchKeepsTheTasksApart(t *testing.T) {
	t.Parallel()
	tasks, err := dispatch(t.Context(), &fakeSide{begin: time.Minute, close: time.Hour}, 5, time.Microsecond)
	require.NoError(t, err)
	require.Len(t, tasks, 5)
	for _, task := range tasks {
		require.False(t, task.acknowledged.Before(task.submitted))
		require.GreaterOrEqual(t, task.began.Sub(task.submitted), time.Minute)
	}
	_, err = dispatch(t.Context(), &fakeSide{name: "x", fail: errors.New("no route")}, 2, time.Microsecond)
	require.EqualError(t, err, "x: submit: no route")
}

func TestBeginOrderTakesFirstBegins(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"b", "a"}, beginOrder([]ledgerEntry{
		{Event: ledgerOnline, At: 1}, {Event: ledgerBegin, Task: "a", At: 20}, {Event: ledgerBegin, Task: "b", At: 10},
		{Event: ledgerEnd, Task: "b", At: 11}, {Event: ledgerBegin, Task: "b", At: 30},
	}))
}

func TestHeapPerTask(t *testing.T) {
	t.Parallel()
	side := DepthSide{Memory: []MemoryState{
		{When: whenEmpty, Heap: 1000}, {When: whenHalf, Queued: 10, Heap: 3000},
		{When: whenFull, Queued: 20, Heap: 3100}, {When: whenDrained, Heap: 1000},
	}}
	whole, half := side.heapPerTask()
	require.InDelta(t, 105, whole, 1e-9)
	require.InDelta(t, 10, half, 1e-9)
	whole, half = (&DepthSide{}).heapPerTask()
	require.Zero(t, whole)
	require.Zero(t, half)
}

func TestQueueTables(t *testing.T) {
	t.Parallel()
	q := Queue{
		Order: judgeOrder([]int{1, 2, 1}, 2),
		Lanes: judgeOrder([]int{5, 1, 1, 1}, 2),
		Fairness: []Fairness{{BigWeight: 1, SmallWeight: 1, Big: 9, Small: 1, Window: 2, Share: 0.5, Fair: 0.5,
			First: 2, Last: 2}},
		Depth: &Depth{Tasks: 8, Slots: 2, Bare: DepthSide{SubmittedPerSecond: 10, QueuedPerSecond: 8,
			DrainedPerSecond: 4},
			Mainstay: DepthSide{SubmittedPerSecond: 5, QueuedPerSecond: 4, DrainedPerSecond: 3,
				Memory: []MemoryState{{When: whenFull, Queued: 8, Heap: 3 << 20}}}},
		Latency: &Dispatch{Rate: 20, Mainstay: DispatchSide{Throughput: 30}, Bare: DispatchSide{Throughput: 40}},
		Control: &Control{Cancel: Times{Count: 30, P50: 12.25, Max: 20}},
	}
	var text bytes.Buffer
	q.write(&text)
	for _, row := range []string{"| 1 ", "1 … 3", "50.0 % of 2", "4.0 tasks/s", "0.75", "3.0 MiB", "12.2 ms"} {
		require.Contains(t, text.String(), row)
	}
	columns := 0
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		if columns == 0 {
			columns = strings.Count(line, "|")
		}
		require.Equal(t, columns, strings.Count(line, "|"), "%s", line)
	}
	require.Equal(t, []string{"0.0 KiB", "0.0 KiB", "1.5 KiB", "-2.0 KiB"},
		[]string{kibibyte(-3), kibibyte(0), kibibyte(1536), kibibyte(-2048)})
	text.Reset()
	(&Queue{}).write(&text)
	require.Empty(t, text.String(), "what was not measured has no table")
}

func TestAdvancing(t *testing.T) {
	t.Parallel()
	n := 0
	require.NoError(t, advancing(t.Context(), "three", 3, time.Microsecond,
		func(context.Context) (int, error) { n++; return n, nil }))
	require.Equal(t, 3, n)
	broken := errors.New("broken")
	require.ErrorIs(t, advancing(t.Context(), "three", 3, time.Microsecond,
		func(context.Context) (int, error) { return 0, broken }), broken)
}

func TestEventuallySaysWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	err := eventually(t.Context(), "rain", time.Millisecond, time.Microsecond,
		func(context.Context) (bool, error) { return false, nil })
	require.EqualError(t, err, "after 1ms there is still no sign of rain")
}

func TestGroupOfProcesses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leader")
	require.Zero(t, leaderIn(file))
	command := exec.Command("sh", "-c", `echo $$ > "$1"; sleep 600 & sleep 600; exit`, "sh", file)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, command.Start())
	defer func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }()
	var members []int
	require.Eventually(t, func() bool {
		var err error
		members, err = groupOf(command.Process.Pid)
		return err == nil && len(members) == commandProcesses && leaderIn(file) == command.Process.Pid
	}, 10*time.Second, time.Millisecond)
	for _, pid := range members {
		require.True(t, runs(pid))
	}
	require.NoError(t, syscall.Kill(-command.Process.Pid, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		left, err := groupOf(command.Process.Pid)
		return err == nil && len(left) == 0 && !runs(command.Process.Pid)
	}, 10*time.Second, time.Millisecond, "a process that nobody has waited for has ended all the same")
	require.Error(t, command.Wait())
	require.NoError(t, os.WriteFile(file, []byte("12"), 0o600))
	require.Zero(t, leaderIn(file), "the line is not whole yet")
}

func TestMemoryOfThisProcess(t *testing.T) {
	t.Parallel()
	resident, heap, err := ownMemory()
	require.NoError(t, err)
	require.Greater(t, resident, int64(1<<20))
	require.Positive(t, heap)
	_, err = memory(-1)
	require.Error(t, err)
	require.Equal(t, int64(5<<10), kibibytes(fmt.Sprintf("VmHWM:\t%8d kB\nVmRSS:\t%8d kB\n", 9, 5), "VmRSS:"))
}
