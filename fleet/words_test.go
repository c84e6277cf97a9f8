package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                             "",
		"disk errors: 5 µs \t\n":       "disk errors: 5 µs \t\n",
		"a\x00b\x1b[31m\r\x7f":         "a b [31m  ",
		"\u0085\u2028\u2029\u200d":     "   \u200d",
		"half a letter \xc3, <script>": "half a letter \ufffd, <script>",
	} {
		require.Equal(t, want, Printable(in))
	}
}
