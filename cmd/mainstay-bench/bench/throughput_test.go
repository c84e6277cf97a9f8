package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeSide answers at once: tasks begin and close when its pretended system says so.
type fakeSide struct {
	name         string
	begin, close time.Duration // after submission
	mu           sync.Mutex
	submitted    []time.Time
	fail         error
}

func (f *fakeSide) Name() string { return f.name }

func (f *fakeSide) Submit(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.submitted = append(f.submitted, time.Now())
	return fmt.Sprint(len(f.submitted) - 1), f.fail
}

func (f *fakeSide) Begun(_ context.Context, id string) (time.Time, time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var i int
	if _, err := fmt.Sscan(id, &i); err != nil {
		return time.Time{}, time.Time{}, err
	}
	return f.submitted[i].Add(f.begin), f.submitted[i].Add(f.close), nil
}

func TestCompareTakesTurnsAndCharges(t *testing.T) {
	t.Parallel()
	bare := &fakeSide{name: "bare", begin: 10 * time.Second, close: 20 * time.Second}
	mainstay := &fakeSide{name: "mainstay", begin: 20 * time.Second, close: 40 * time.Second}
	var used time.Duration
	plan := throughputPlan{rounds: 2, tasks: 8, clients: 4, latencyTasks: 3, latencyEvery: time.Microsecond}
	plan.cpu = func() CPU {
		used += time.Second
		return CPU{Server: used, All: 2 * used, Busy: 4 * used}
	}
	var progress bytes.Buffer
	measured, err := plan.compare(t.Context(), []side{bare, mainstay}, &progress)
	require.NoError(t, err)
	for i, m := range measured {
		require.Len(t, m.PerSecond, 2)
		require.Len(t, m.latency, 6)
		require.Equal(t, 16, m.tasks, "the round to warm up is not counted")
		require.Equal(t, CPU{Server: 2 * time.Second, All: 4 * time.Second, Busy: 8 * time.Second}, m.cpu)
		for _, latency := range m.latency {
			require.GreaterOrEqual(t, latency, 10*time.Second*time.Duration(i+1),
				"from before the submission to the begin")
		}
	}
	// 8 tasks that close 20 s after their submission make at most 0.4 a second, whatever the machine does.
	require.LessOrEqual(t, measured[0].PerSecond[0], 0.4)
	require.LessOrEqual(t, measured[1].PerSecond[0], 0.2)
	require.Regexp(t, `(?s)1/2  bare .*1/2  mainstay .*2/2  mainstay .*2/2  bare `, progress.String())
	var text bytes.Buffer
	writeThroughput(&text, &comparison{Bare: measured[0], Mainstay: measured[1], Stock: measured[0]})
	require.Contains(t, text.String(), "| submit → begin, p50 ")
	require.Contains(t, text.String(), "| 125.0 ms ", "2 s of the server for 16 tasks")
	require.Contains(t, text.String(), "| 50 % ", "half of what the machine did was somebody else's")
	for line := range bytes.Lines(text.Bytes()) {
		require.Equal(t, 5, bytes.Count(line, []byte("|")), "%s", line)
	}
}

func TestCompareStopsAtAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("no route")
	plan := throughputPlan{rounds: 1, tasks: 4, clients: 2}
	sides := []side{&fakeSide{name: "bare"}, &fakeSide{name: "mainstay", fail: broken}}
	_, err := plan.compare(t.Context(), sides, &bytes.Buffer{})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "mainstay: submit")
}

func TestParseCPUTime(t *testing.T) {
	t.Parallel()
	used, err := parseCPUTime("42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 150 25 7 8 20 0 9 0 100")
	require.NoError(t, err)
	require.Equal(t, 1750*time.Millisecond, used)
	_, err = parseCPUTime("42 (a) S 1")
	require.Error(t, err)
	_, err = parseCPUTime("42 (a) S 1 42 42 0 -1 4194560 1 2 3 4 x 25 7 8")
	require.Error(t, err)
}

func TestParseBusyTime(t *testing.T) {
	t.Parallel()
	require.Equal(t, (100+1+20+3+4)*clockTick, parseBusyTime("cpu  100 1 20 5000 600 3 4 7 0 0\ncpu0 1 2 3\n"))
	require.Zero(t, parseBusyTime("intr 1 2 3"))
	require.Zero(t, parseBusyTime(""))
}

func TestTotalMemory(t *testing.T) {
	t.Parallel()
	require.Equal(t, int64(2048), kibibytes("MemFree: 1 kB\nMemTotal:        2 kB\n", "MemTotal:"))
	require.Zero(t, kibibytes("MemFree: 1 kB\n", "MemTotal:"))
}
