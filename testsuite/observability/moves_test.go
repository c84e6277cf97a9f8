package observability

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryMetricIsSeenMoving: each metric is named in a test outside this folder, which checks names only.
func TestEveryMetricIsSeenMoving(t *testing.T) {
	t.Parallel()
	unseen := map[string]bool{}
	for _, m := range catalogue(t) {
		unseen[m.Name] = true
	}
	require.NotEmpty(t, unseen)
	here, err := filepath.Abs(".")
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		if full, err := filepath.Abs(path); err != nil || filepath.Dir(full) == here {
			return err
		}
		text, err := os.ReadFile(path)
		for name := range unseen {
			if strings.Contains(string(text), name) {
				delete(unseen, name)
			}
		}
		return err
	}))
	require.Empty(t, unseen)
}
