package process

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/build"
	"mainstay.dev/mainstay/testsuite/kubernetes"
	"mainstay.dev/sdk/api"
)

// TestPodsAreAgents runs agents in pods of a real kubelet, ends them in several ways, and counts pods.
func TestPodsAreAgents(t *testing.T) {
	t.Parallel()
	servers := kubernetes.Start(t)
	archive, err := build.Image(containerAgent(t), testImage)
	require.NoError(t, err)
	node := servers.StartNode(t, testImage, archive)
	y := newYardOn(t, "podded", node.Address, fmt.Sprintf("kubernetes: {kubeconfig: %q, image: %q}",
		node.KubeconfigOf(t, "spawner"), testImage), map[string]any{"platform": "kubernetes",
		"resources": map[string]any{"cpu": "200m", "memory": "64Mi"}})
	y.count = func(assert.TestingT) int {
		return len(strings.Fields(node.Kubectl(t, "", "get", "pods", "--field-selector", "status.phase=Running", "-o", "name")))
	}
	y.startSpawner(t, "")
	submit := func(taskType string) (task, agent string) {
		t.Helper()
		made, err := y.api.Tasks.Submit(t.Context(), &api.TaskRequest{TaskSpec: api.TaskSpec{Type: taskType,
			Cluster: y.name, RetrySafety: api.AtMostOnce, Payload: fmt.Appendf(nil, "%q", y.hub)}})
		require.NoError(t, err)
		return made.ID, y.holder(t, made.ID, "")
	}

	y.scale(t, 5)
	y.has(t, 5)
	require.Len(t, node.Left(t), 10, "a pod and a secret each")
	task, _ := submit("count")
	require.Equal(t, api.TaskCompleted, y.settled(t, task).Status)

	for _, end := range []struct {
		task, reason string
		by           func(pod string)
	}{
		{"hold", "its container was ended by SIGKILL", func(pod string) { node.Kill(t, pod) }},
		{"hold", "its pod was deleted: its container was ended by SIGKILL", func(pod string) { node.Kubectl(t, "", "delete", "pod", pod) }},
		{"hold", "its pod was deleted", func(pod string) { node.Kubectl(t, "", "delete", "pod", pod, "--force") }},
		{"hold", "its pod was ended: EvictionByEvictionAPI: Eviction API: evicting", func(pod string) { node.Evict(t, pod) }},
		{"eat", "its container was killed: it used more than its 64 MiB of memory", func(string) {}},
		{"fill", `its pod was ended: Evicted: Usage of EmptyDir volume "mainstay-tmp" exceeds the limit "64Mi". `,
			func(string) {}},
	} {
		begun := time.Now()
		_, agent := submit(end.task)
		end.by("mainstay-" + strings.ReplaceAll(agent, "_", "-"))
		assert.Equal(t, end.reason, y.endOf(t, agent))
		y.saw(t, agent, end.reason)
		y.has(t, 5)
		t.Logf("%s: replaced after %s", end.reason, time.Since(begun).Round(time.Second/10))
	}

	t.Log("a spawner that is killed leaves its agents alone, and the next one knows them")
	y.spawner.signal(t, syscall.SIGKILL)
	y.spawner.exit(t)
	y.startSpawner(t, "")
	y.scale(t, 2)
	y.has(t, 2)
	y.scale(t, 0)
	require.Eventually(t, func() bool { return len(node.Left(t)) == 0 }, patience, time.Second, "nothing is left")
}
