package app

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTableCells(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	table := NewTable(&out, "A", "B", "C")
	table.Row("", "two\nlines", "")
	require.NoError(t, table.Flush())
	require.Equal(t, "A  B          C\n-  two lines\n", out.String())
}

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	a := &App{Now: func() time.Time { return now }}
	require.Empty(t, a.Ago(nil))
	for before, text := range map[time.Duration]string{
		250 * time.Millisecond: "250ms ago", 1500 * time.Millisecond: "1.5s ago", 59 * time.Second: "59s ago",
		119 * time.Minute: "119m ago", 47 * time.Hour: "47h ago", 72 * time.Hour: "3d ago", -30 * time.Second: "in 30s",
	} {
		at := now.Add(-before)
		require.Equal(t, text, a.Ago(&at))
	}
}

func TestByteCount(t *testing.T) {
	t.Parallel()
	for n, text := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB",
		5 << 40: "5.0 TiB"} {
		require.Equal(t, text, ByteCount(n))
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for d, wants := range map[time.Duration]string{
		999 * time.Millisecond: "999ms", 1500 * time.Millisecond: "1.5s", 59 * time.Second: "59s",
		3 * time.Minute: "3m", 5 * time.Hour: "5h", 72 * time.Hour: "3d",
	} {
		require.Equal(t, wants, Roughly(d))
	}
	for n, wants := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB",
		5 << 30: "5.0 GiB"} {
		require.Equal(t, wants, ByteCount(n))
	}
	for text, wants := range map[string]string{"Build-Box.local": "build-box.local", "-x": "x", "ÄÖ": "host",
		"": "host", "a b": "a-b"} {
		require.Equal(t, wants, Slug(text, 20), text)
	}
	require.Equal(t, "abc", Slug("abcdef", 3))
}

func TestProgress(t *testing.T) {
	t.Parallel()
	var lines, bar bytes.Buffer
	plain := &Progress{To: &lines, Unit: "tasks", Total: 10}
	tty := &Progress{To: &bar, TTY: true, Unit: "tasks", Total: 2}
	for range 10 {
		plain.Step()
	}
	require.Equal(t, "3 of 10 tasks\n5 of 10 tasks\n8 of 10 tasks\n10 of 10 tasks\n", lines.String())
	tty.Step()
	tty.Step()
	require.Equal(t, "\r["+strings.Repeat("#", 20)+strings.Repeat(".", 20)+"] 1 of 2 tasks\r["+strings.Repeat("#",
		40)+"] 2 of 2 tasks\n", bar.String())
}

// Agents and tasks choose these texts, and a terminal must not obey them.
func TestJSONHasOnlyWhatCanBePrinted(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"plain <b> ü 界 😀":     `"plain <b> ü 界 😀"`,
		"a\x1b[31mb\u009b31m": `"a\u001b[31mb\u009b31m"`,
		"\u202eabc\u2066\x7f": `"\u202eabc\u2066\u007f"`,
		"\U000e0041":          `"\udb40\udc41"`,
		"a\nb\tc":             `"a\nb\tc"`,
	} {
		var out strings.Builder
		a := &App{Stdout: &out}
		require.NoError(t, a.PrintLine(said))
		require.Equal(t, want+"\n", out.String())
		var back string
		require.NoError(t, json.Unmarshal([]byte(out.String()), &back))
		require.Equal(t, said, back)
	}
}

// A program's output tells the terminal nothing.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"\x1b[31mred\x1b[0m\tand\n":       "red\tand\n",
		"10%\r20%\r\ndone":                "10%\n20%\ndone",
		"over\b\bwritten\x07\x00":         "over\ufffd\ufffdwritten\ufffd\ufffd",
		"\u3000wide\u00a0blank \u202emoc": "\u3000wide\u00a0blank \ufffdmoc",
	} {
		require.Equal(t, want, Printable(in))
	}
	require.Equal(t, "red and more", OneLine("\x1b[31mred\x1b[0m\nand\x07more"))
}
