package agent

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func written(texts ...string) *headTail {
	b := &headTail{limit: maxExecOutput}
	for _, text := range texts {
		_, _ = b.Write([]byte(text))
	}
	return b
}

// Whatever a command writes, its result fits.
func TestResultsFit(t *testing.T) {
	t.Parallel()
	piece := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"\x00", "<&>", "\x1b[31m", "\u2028", "é", "\xff", "\n", "plain text"}))
	output := rapid.Custom(func(t *rapid.T) string {
		return strings.Repeat(piece.Draw(t, "piece"), rapid.IntRange(0, 9000).Draw(t, "times")) + piece.Draw(t, "end")
	})
	rapid.Check(t, func(t *rapid.T) {
		out, errs := output.Draw(t, "stdout"), output.Draw(t, "stderr")
		limit := rapid.IntRange(resultFrame+2*cutMarkSize, 1<<20).Draw(t, "limit")
		result := fitResult(written(out), written(errs), limit)
		data, err := json.Marshal(result)
		require.NoError(t, err)
		require.LessOrEqual(t, len(data), limit)
		for kept, all := range map[string]string{result.Stdout: out, result.Stderr: errs} {
			require.True(t, utf8.ValidString(kept))
			require.True(t, kept == valid(all) || strings.Contains(kept, " bytes cut …]\n"))
		}
	})
}

func TestResultsKeepTheBeginningAndTheEnd(t *testing.T) {
	t.Parallel()
	long := "first\n" + strings.Repeat("0123456789\n", 10_000) + "last\n"
	for name, c := range map[string]struct {
		stdout, stderr string
		limit          int
		least          int // of the JSON
	}{
		"one output":  {long, "a note\n", 64 << 10, 60 << 10},
		"the other":   {"a note\n", long, 64 << 10, 60 << 10},
		"both":        {long, long, 64 << 10, 60 << 10},
		"little room": {long, "", 400, 300},
		"all of it":   {strings.Repeat("x", 60_000), "", 64 << 10, 60_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := fitResult(written(c.stdout), written(c.stderr), c.limit)
			data, err := json.Marshal(result)
			require.NoError(t, err)
			require.Greater(t, len(data), c.least)
			require.LessOrEqual(t, len(data), c.limit)
			for kept, all := range map[string]string{result.Stdout: c.stdout, result.Stderr: c.stderr} {
				if all == long {
					require.True(t, strings.HasPrefix(kept, "first\n0123456789\n"))
					require.True(t, strings.HasSuffix(kept, "\n0123456789\nlast\n"))
					require.Regexp(t, `\n\[… \d+ bytes cut …\]\n`, kept)
					continue
				}
				require.Equal(t, all, kept)
			}
		})
	}
}

func TestACutSplitsNoCharacter(t *testing.T) {
	t.Parallel()
	for shift := range 4 {
		result := fitResult(written(strings.Repeat("x", shift), strings.Repeat("€", 40_000)), written(), 1<<20)
		require.NotContains(t, result.Stdout, "?")
		require.NotContains(t, result.Stdout, "\uFFFD")
	}
}
