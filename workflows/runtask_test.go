package workflows_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDeliveriesGoThroughRunTask keeps work from waiting in a lane that nobody has opened.
func TestDeliveriesGoThroughRunTask(t *testing.T) {
	t.Parallel()
	var schedule []string
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		if strings.Contains(string(code), "RunTaskActivity.Execute") || strings.Contains(string(code), "RunTaskActivity.Name") {
			schedule = append(schedule, path)
		}
		return err
	}))
	require.Equal(t, []string{"runtask.go"}, schedule)
}
