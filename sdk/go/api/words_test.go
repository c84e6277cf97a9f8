package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                             "",
		"disk errors: 5 µs \t\n":       "disk errors: 5 µs \t\n",
		"a\x00b\x1b[31m\r\x7f":         "a b  ",
		"\u0085\u2028\u2029\u200d":     "   \u200d",
		"half a letter \xc3, <script>": "half a letter \ufffd, <script>",
	} {
		require.Equal(t, want, Printable(in))
	}
}

func TestWithoutEscapes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain":                                 "plain",
		"\x1b[1;31mred\x1b[0m text":             "red text",
		"\x1b[38:2::1:2:3mred\x1b[m":            "red",
		"\x1b[2J\x1b[10;20Hmoved\x1b[?25l":      "moved",
		"\x1b]0;title\x07text":                  "text",
		"\x1b]8;;http://a/\x1b\\link\x1b]8;;\a": "link",
		"\x1b]0;no end\nthe next line":          "0;no end\nthe next line",
		"\x1bPq#0\x1b\\picture":                 "picture",
		"\x1b(B\x1b7\x1bcreset":                 "reset",
		"\u009b31mred":                          "red",
		"\u009d0;title\u009ctext":               "text",
		"cut\x1b[3":                             "cut3",
		"[31m is no escape":                     "[31m is no escape",
	} {
		require.Equal(t, want, WithoutEscapes(in), "%q", in)
	}
}
