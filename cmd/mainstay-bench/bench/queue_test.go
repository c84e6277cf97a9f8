package bench

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDispatchKeepsTheTasksApart(t *testing.T) {
	t.Parallel()
	tasks, err := dispatch(t.Context(), &fakeSide{begin: time.Minute, close: time.Hour}, 5, time.Microsecond)
	require.NoError(t, err)
	require.Len(t, tasks, 5)
	for _, wait := range tasks.waits() {
		require.GreaterOrEqual(t, wait, time.Minute)
	}
	_, err = dispatch(t.Context(), &fakeSide{fail: errors.New("no route")}, 2, time.Microsecond)
	require.EqualError(t, err, "submit: no route")
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

func TestQueueTable(t *testing.T) {
	t.Parallel()
	d := Depth{Tasks: 8, Slots: 2, Bare: DepthSide{SubmittedPerSecond: 10, QueuedPerSecond: 8, DrainedPerSecond: 4},
		Mainstay: DepthSide{SubmittedPerSecond: 5, QueuedPerSecond: 4, DrainedPerSecond: 3,
			Memory: []MemoryState{{When: whenFull, Queued: 8, Heap: 3 << 20}}}}
	var text bytes.Buffer
	d.write(&text)
	for _, part := range []string{"4.0 tasks/s", "0.75", "3.0 MiB"} {
		require.Contains(t, text.String(), part)
	}
	for line := range strings.Lines(text.String()) {
		require.Equal(t, 5, strings.Count(line, "|"), "%s", line)
	}
	require.Equal(t, []string{"0.0 KiB", "0.0 KiB", "1.5 KiB", "-2.0 KiB"},
		[]string{kibibyte(-3), kibibyte(0), kibibyte(1536), kibibyte(-2048)})
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

func TestMemoryOfThisProcess(t *testing.T) {
	t.Parallel()
	resident, heap, err := ownMemory()
	require.NoError(t, err)
	require.Greater(t, resident, int64(1<<20))
	require.Positive(t, heap)
	_, err = memory(-1)
	require.Error(t, err)
}
