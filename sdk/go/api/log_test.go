package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A tail keeps the newest lines, without a gap, within both bounds, and no fewer than fit.
func TestLogTail(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var tail LogTail
		sizes := rapid.SliceOfN(rapid.IntRange(0, MaxLogLineBytes), 0, 3*MaxLogLines).Draw(t, "sizes")
		for i, size := range sizes {
			tail.Add(LogLine{Number: int64(i + 1), Text: strings.Repeat("x", size)})
		}
		kept := tail.After(0)
		bytes := 0
		for i, line := range kept {
			bytes += len(line.Text)
			if want := int64(len(sizes) - len(kept) + i + 1); line.Number != want {
				t.Fatalf("line %d where %d should be", line.Number, want)
			}
		}
		if len(kept) > MaxLogLines || bytes > MaxLogBytes {
			t.Fatalf("%d lines of %d bytes", len(kept), bytes)
		}
		if dropped := len(sizes) - len(kept); dropped > 0 && len(kept) < MaxLogLines &&
			bytes+sizes[dropped-1] <= MaxLogBytes {
			t.Fatal("one more would have fitted")
		}
	})
}

func TestLogTailAfter(t *testing.T) {
	t.Parallel()
	var tail LogTail
	require.Nil(t, tail.After(0))
	for _, n := range []int64{1, 2, 5} {
		tail.Add(LogLine{Number: n})
	}
	require.Len(t, tail.After(2), 1)
	require.EqualValues(t, 5, tail.After(3)[0].Number)
	require.Nil(t, tail.After(5))
	require.EqualValues(t, 5, tail.Last())
}
