package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeSide answers at once: tasks begin and close when its pretended system says so.
type fakeSide struct {
	begin, close time.Duration // after submission
	mu           sync.Mutex
	submitted    []time.Time
	fail         error
}

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
	var used time.Duration
	meter := func() CPU {
		used += time.Second
		return CPU{Server: used, All: 2 * used, Busy: 4 * used}
	}
	plan := throughputPlan{rounds: 2, tasks: 8, clients: 4}
	var progress bytes.Buffer
	sides, err := (&run{story: &progress}).compare(t.Context(), plan.rounds, "tasks/s", meter,
		plan.contender("bare", &fakeSide{begin: 10 * time.Second, close: 20 * time.Second}),
		plan.contender("mainstay", &fakeSide{begin: 20 * time.Second, close: 40 * time.Second}))
	require.NoError(t, err)
	for i, s := range sides {
		require.Len(t, s.PerSecond, 2)
		require.Equal(t, 16, s.Count)
		require.Equal(t, 16, s.n, "the round to warm up is not counted")
		require.Equal(t, CPU{Server: 2 * time.Second, All: 4 * time.Second, Busy: 8 * time.Second}, s.cpu)
		require.InDelta(t, 10_000*(i+1), s.P50, 1000, "from before the submission to the begin")
	}
	// 8 tasks that close 20 s after their submission make at most 0.4 a second, whatever the machine does.
	require.LessOrEqual(t, sides[0].PerSecond[0], 0.4)
	require.LessOrEqual(t, sides[1].PerSecond[0], 0.2)
	require.Regexp(t, `(?s)1/2  bare .*1/2  mainstay .*2/2  mainstay .*2/2  bare `, progress.String())
	var text bytes.Buffer
	(&comparison{Bare: sides[0], Mainstay: sides[1], Stock: sides[0]}).write(&text)
	require.Contains(t, text.String(), "| submit → begin, p50 ")
	require.Contains(t, text.String(), "| 125.0 ms ", "2 s of the server for 16 tasks")
	require.Contains(t, text.String(), "| 50 % ", "half of what the machine did was somebody else's")
	for line := range bytes.Lines(text.Bytes()) {
		require.Equal(t, 5, bytes.Count(line, []byte("|")), "%s", line)
	}
	data, err := json.Marshal(sides[0])
	require.NoError(t, err)
	require.Contains(t, string(data), `"p50_ms":`)
}

func TestCompareStopsAtAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("no route")
	plan := throughputPlan{rounds: 1, tasks: 4, clients: 2}
	_, err := (&run{story: io.Discard}).compare(t.Context(), plan.rounds, "tasks/s", func() CPU { return CPU{} },
		plan.contender("bare", &fakeSide{}), plan.contender("mainstay", &fakeSide{fail: broken}))
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "mainstay: submit")
}
