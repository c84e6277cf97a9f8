package process

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUnreadOutputStops closes the reading end of the output, as `| head -1` does: the program stops, and what it has
// started too.
func TestUnreadOutputStops(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		program func() (string, error)
		args    []string
	}{
		"a benchmark": {benchmarks, []string{"idle", "--agents", "1", "--for", "10m"}},
		"the demo":    {binary, []string{"demo", "--keep"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, err := c.program()
			require.NoError(t, err)
			temporary := t.TempDir()
			read, write, err := os.Pipe()
			require.NoError(t, err)
			command := exec.Command(path, c.args...)
			command.Env = append(plainEnvironment(), "TMPDIR="+temporary)
			command.Stdout = write
			require.NoError(t, command.Start())
			require.NoError(t, write.Close())
			t.Cleanup(func() {
				for _, pid := range processesWith("TMPDIR=" + temporary) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			ended := make(chan struct{})
			go func() { _ = command.Wait(); close(ended) }()
			_, err = bufio.NewReader(read).ReadString('\n')
			require.NoError(t, err, "it says how it begins")
			require.NoError(t, read.Close())
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatal("it goes on although nobody reads what it says")
			}
			require.NotEqual(t, -1, command.ProcessState.ExitCode(), "it stops by itself, and not by a signal")
			require.Eventually(t, func() bool { return len(processesWith("TMPDIR="+temporary)) == 0 }, patience,
				50*time.Millisecond,
				"processes of it are left")
		})
	}
}

// processesWith are the processes that have a variable in their environment. It leaves out those that have ended.
func processesWith(variable string) []int {
	var found []int
	entries, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
		environment, unread := os.ReadFile(entry)
		if err == nil && unread == nil && alive(pid) && strings.Contains(string(environment)+"\x00", variable+"\x00") {
			found = append(found, pid)
		}
	}
	return found
}
