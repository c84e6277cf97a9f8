//go:build linux

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mainstay.dev/mainstay/testsuite/slow"

	"github.com/stretchr/testify/require"
)

// family has a child, a grandchild and a daemon that has left the session, all deaf to SIGTERM. The folder $0/<its id>
// has their process ids.
const family = `trap "" TERM; d=$0/$$; mkdir "$d"
sh -c 'sh -c "echo \$\$ >$0/grandchild; while :; do sleep 0.1; done"; true' "$d" &
echo $! >"$d/child"
(setsid sh -c '(sh -c "echo \$\$ >$0/daemon; while :; do sleep 0.1; done" &)' "$d" >/dev/null 2>&1 &)
for name in grandchild daemon; do until [ -s "$d/$name" ]; do sleep 0.01; done; done
touch "$d/ready"; wait`

// awaitFamily waits for a process of family that is not the one given, and returns it with its descendants.
func awaitFamily(t *testing.T, dir string, not int) (pids []int) {
	t.Helper()
	require.Eventually(t, func() bool {
		folders, err := filepath.Glob(dir + "/*/ready")
		require.NoError(t, err)
		for _, ready := range folders {
			folder := filepath.Dir(ready)
			if filepath.Base(folder) == strconv.Itoa(not) {
				continue
			}
			texts := []string{filepath.Base(folder)}
			for _, name := range []string{"child", "grandchild", "daemon"} {
				text, err := os.ReadFile(filepath.Join(folder, name))
				require.NoError(t, err)
				texts = append(texts, strings.TrimSpace(string(text)))
			}
			for _, text := range texts {
				pid, err := strconv.Atoi(text)
				require.NoError(t, err)
				pids = append(pids, pid)
			}
			return true
		}
		return false
	}, patience, tick)
	return pids
}

// agentAbove is the agent that a process is a descendant of.
func agentAbove(t *testing.T, pid int, agents ...*program) *program {
	t.Helper()
	for pid > 1 {
		if i := slices.IndexFunc(agents, func(p *program) bool { return p.pid() == pid }); i >= 0 {
			return agents[i]
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(stat), ") ")
		pid, err = strconv.Atoi(strings.Fields(rest)[1])
		require.NoError(t, err)
	}
	require.Fail(t, "no agent is above the process")
	return nil
}

func TestKilledAgentLeavesNoProcessBehind(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	_, url := serve(t, "hub-family")
	c := clusterNamed(t, url, "family")
	one, two := runAgent(t, url, c, "family-1"), runAgent(t, url, c, "family-2")
	online(t, url, "family-1")
	online(t, url, "family-2")
	dir := t.TempDir()
	task := execTask(c, family, dir)
	task["retry_safety"] = "fenced"
	submit(t, url, task)
	first := awaitFamily(t, dir, 0)
	t.Cleanup(func() {
		for _, pid := range first {
			_ = syscall.Kill(pid, syscall.SIGKILL) // those that are left when the test fails
		}
	})
	lost := agentAbove(t, first[0], one, two)
	lost.signal(t, syscall.SIGKILL)
	begun := time.Now()
	require.Eventually(t, func() bool { return !slices.ContainsFunc(first, alive) }, time.Second, tick,
		"a process of the command is left")
	t.Logf("nothing was left after %s", time.Since(begun).Round(time.Millisecond))
	second := awaitFamily(t, dir, first[0])
	require.NotSame(t, lost, agentAbove(t, second[0], one, two))
	require.False(t, slices.ContainsFunc(first, alive))
}
