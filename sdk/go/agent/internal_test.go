package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// LivesOn lets tests say that something which a task's command has started cannot be killed.
func LivesOn(task *Task) bool { return task.livesOn() }

func TestHeadTail(t *testing.T) {
	t.Parallel()
	for _, total := range []int{0, 1, 17, 18, 19, 35, 36, 37, 100, 1000} {
		for _, chunk := range []int{1, 7, 18, 50, 1000} {
			t.Run(fmt.Sprintf("%d by %d", total, chunk), func(t *testing.T) {
				t.Parallel()
				var all strings.Builder
				for i := range total {
					all.WriteByte(byte('a' + i%26))
				}
				text := all.String()
				b := &headTail{limit: 100} // keeps 18 bytes of either end
				for rest := text; rest != ""; {
					n := min(chunk, len(rest))
					written, err := b.Write([]byte(rest[:n]))
					require.NoError(t, err)
					require.Equal(t, n, written)
					rest = rest[n:]
				}
				want := text
				if total > 36 {
					want = text[:18] + fmt.Sprintf("\n[… %d bytes cut …]\n", total-36) + text[total-18:]
				}
				require.Equal(t, want, b.within(1000))
				require.True(t, strings.HasSuffix(text, b.tail(5)))
			})
		}
	}
}

func TestCutTextKeepsValidUTF8(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("é", 50)
	for limit := 10; limit < 100; limit++ {
		for _, cut := range []string{cutText(text, limit), cutMiddle(text, limit)} {
			require.LessOrEqual(t, len(cut), limit)
			require.True(t, utf8.ValidString(cut))
		}
	}
	require.Equal(t, "short", cutMiddle("short", 10))
	require.Equal(t, "a\uFFFDb", cutText("a\xffb", 10))
}

func TestRecentKeysForgetTheOldest(t *testing.T) {
	t.Parallel()
	k := newRecentKeys()
	for i := range recentMost + 10 {
		k.add(attemptKey{"t", i})
		k.add(attemptKey{"t", i})
	}
	require.Len(t, k.set, recentMost)
	require.False(t, k.has(attemptKey{"t", 9}))
	require.True(t, k.has(attemptKey{"t", 10}))
}

func TestHostMetrics(t *testing.T) {
	t.Parallel()
	busy, all, ok := parseCPU([]byte("cpu  10 1 5 100 4 1 1 2 7 0\ncpu0 1 1 1 1\n"))
	require.True(t, ok)
	require.EqualValues(t, 20, busy)
	require.EqualValues(t, 124, all)
	used, total, ok := parseMemory([]byte("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   250 kB\n"))
	require.True(t, ok)
	require.EqualValues(t, 750, used)
	require.EqualValues(t, 1000, total)
	require.InDelta(t, 75, percent(used, total), 0.01)
	for _, bad := range []string{"", "cpu\n", "cpu a b c d e f\n", "intr 1 2 3 4 5 6"} {
		_, _, ok := parseCPU([]byte(bad))
		require.False(t, ok)
		_, _, ok = parseMemory([]byte(bad))
		require.False(t, ok)
	}
	var m hostMetrics
	first := m.read()
	require.Equal(t, first, m.read(), "a sample is kept for a while")
	for _, p := range []*float64{first.MemoryPercent, first.DiskPercent} {
		require.GreaterOrEqual(t, *p, 0.0)
		require.LessOrEqual(t, *p, 100.0)
	}
}

// Whose word counts for how long work has to end.
func TestStopGrace(t *testing.T) {
	t.Parallel()
	second := api.Duration(time.Second)
	minute, none := 60*second, api.Duration(0)
	for name, c := range map[string]struct {
		task  Task
		cause error
		want  time.Duration
	}{
		"a command":                       {Task{Type: ExecType}, ErrCancelled, 30 * time.Second},
		"out of time":                     {Task{Type: ExecType}, context.DeadlineExceeded, 30 * time.Second},
		"a handler":                       {Task{Type: "render"}, ErrCancelled, 5 * time.Second},
		"its task's word":                 {Task{Type: ExecType, StopGrace: &minute}, ErrCancelled, time.Minute},
		"at once":                         {Task{Type: ExecType, StopGrace: &none}, ErrCancelled, 0},
		"its agent stops":                 {Task{Type: ExecType, StopGrace: &minute}, ErrStopping, 5 * time.Second},
		"its agent stops, a shorter one":  {Task{Type: ExecType, StopGrace: &second}, ErrStopping, time.Second},
		"an instance":                     {Task{Type: ExecType, Instance: &api.InstanceOf{}}, ErrCancelled, 5 * time.Second},
		"an instance with its job's word": {Task{Type: ExecType, Instance: &api.InstanceOf{StopGrace: minute}}, ErrCancelled, time.Minute},
	} {
		require.Equal(t, c.want, c.task.stopGrace(c.cause), name)
	}
}
