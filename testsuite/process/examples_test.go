package process

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExamplesAgainstTheRealControlPlane runs the example agents that need no Go: what they rely on of the protocol
// must be what a real hub says.
func TestExamplesAgainstTheRealControlPlane(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "hub-examples")
	for name, c := range map[string]struct {
		needs   []string
		command []string
	}{
		"node":   {[]string{"node"}, []string{"node", "../../examples/javascript/agent.mjs"}},
		"python": {[]string{"python3"}, []string{"python3", "../../examples/python/agent.py"}},
		"small":  {[]string{"python3"}, []string{"python3", "../../examples/python/small.py"}},
		"shell":  {[]string{"sh", "curl"}, []string{"sh", "../../examples/shell/agent.sh"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, program := range c.needs {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("%s is not installed", program)
				}
			}
			clusterNamed(t, url, "examples-"+name)
			p := launch(t, []string{"HUB=" + url, "CLUSTER=examples-" + name, "ID=examples-" + name,
				"TMPDIR=" + t.TempDir()}, c.command[0], c.command[1:]...)
			t.Cleanup(func() { _ = syscall.Kill(-p.pid(), syscall.SIGTERM); p.end(t) })
			var ids []string
			payload := map[string]any{"text": `a "quoted" line`, "list": []int{1, 2}, "token": "}"}
			for range 40 { // the next one often comes before the agent has read the answer to its last result
				ids = append(ids, submit(t, url, map[string]any{"type": "echo", "cluster": "examples-" + name,
					"payload": payload}))
			}
			for _, id := range ids {
				done := completed(t, url, id, patience)
				require.JSONEq(t, `{"text":"a \"quoted\" line","list":[1,2],"token":"}"}`, string(done.Result))
				require.Len(t, done.Attempts, 1, "%+v", done.Attempts)
				require.Equal(t, "examples-"+name, done.Attempts[0].AgentID)
			}
		})
	}
}
