package textfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/textfile"
)

func TestRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ data, text, wrong string }{
		"plain":                 {data: "a: 1\n", text: "a: 1\n"},
		"nothing":               {},
		"a mark":                {data: "\ufeffa: 1\r\n", text: "a: 1\r\n"},
		"a mark alone":          {data: "\ufeff"},
		"a mark that is a word": {data: "a\ufeffb", text: "a\ufeffb"},
		"UTF-16":                {data: "\xff\xfea\x00", wrong: "is UTF-16: save it as UTF-8"},
		"UTF-16, big ends":      {data: "\xfe\xff\x00a", wrong: "is UTF-16: save it as UTF-8"},
		"Latin-1":               {data: "a\nb\ncaf\xe9\nd\xe9", wrong: "line 3 is not UTF-8"},
		"cut in a character":    {data: "\ufeffa\n\xe2\x82", wrong: "line 2 is not UTF-8"},
		"a surrogate":           {data: "\xed\xa0\x80", wrong: "line 1 is not UTF-8"},
	} {
		path := filepath.Join(t.TempDir(), "f")
		require.NoError(t, os.WriteFile(path, []byte(c.data), 0o600))
		text, err := textfile.Read(path)
		again, errAgain := textfile.ReadAll(strings.NewReader(c.data))
		if c.wrong != "" {
			require.ErrorContains(t, err, path+": "+c.wrong, name)
			require.ErrorContains(t, errAgain, c.wrong, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.text, string(text), name)
		require.NoError(t, errAgain, name)
		require.Equal(t, c.text, string(again), name)
	}
}

func TestReadWord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, []byte("\ufeff word\r\n\r\n"), 0o600))
	word, err := textfile.ReadWord(path)
	require.NoError(t, err)
	require.Equal(t, "word", word)
}
