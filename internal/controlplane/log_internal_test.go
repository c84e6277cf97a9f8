package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestALogFileIsBounded writes far more than it may have, over two openings.
func TestALogFileIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.log")
	for _, part := range []string{"first", "second"} {
		l, err := OpenLog(path)
		require.NoError(t, err)
		l.most = 100
		for range 30 {
			_, err = l.Write([]byte(part + "\n"))
			require.NoError(t, err)
		}
		_, err = l.Write([]byte(part + ", the last\n"))
		require.NoError(t, err)
		l.Close()
		_, err = l.Write([]byte("too late\n"))
		require.NoError(t, err)
	}
	for _, name := range []string{path, path + ".1"} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), int64(100))
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(text), "second, the last\n"), "%s", text)
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, files, 2)
}

// TestALogFileIsBoundedAfterAFailure cannot open the file once, as where all files of the process are in use.
func TestALogFileIsBoundedAfterAFailure(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.log")
	l, err := OpenLog(path)
	require.NoError(t, err)
	l.most = 100
	line := strings.Repeat("x", 59) + "\n"
	write := func() {
		_, err := l.Write([]byte(line))
		require.NoError(t, err)
	}
	write()
	require.NoError(t, os.Rename(path, path+".1")) // and the open that follows fails
	for range 10 {
		write()
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(100))
	l.Close()
}
