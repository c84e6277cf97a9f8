package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/testsuite/freeport"
	"mainstay.dev/mainstay/testsuite/plane"
	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// offering starts an agent with eight slots that offers this to tasks.
func (b *bench) offering(t *testing.T, id string, offer api.Inventory) {
	t.Helper()
	startAgent(t, agent.Options{HubURLs: []string{b.node.URL}, Cluster: b.cluster, ID: id, Slots: 8, Resources: &offer,
		StopTimeout: time.Millisecond}, map[string]agent.Handler{"hold": b.hold(id)})
	require.Eventually(t, func() bool {
		status, _ := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/"+id, nil, nil)
		return status == http.StatusOK
	}, patience, 10*time.Millisecond, "agent %s joins", id)
}

// held is what an agent's tasks have of it, by task; nil: its hub does not say.
func (b *bench) held(t *testing.T, id string) map[string]api.Allocation {
	t.Helper()
	var a api.Agent
	status, problem := call(t, http.MethodGet, b.node.URL+"/api/v1/agents/"+id+"?view=full", nil, &a)
	require.Equal(t, http.StatusOK, status, "%+v", problem)
	if a.CurrentTasks == nil {
		return nil
	}
	held := map[string]api.Allocation{}
	for _, task := range a.CurrentTasks {
		held[task.TaskID] = *task.Allocation
	}
	return held
}

// blocked waits until a task's reason contains words, and checks that no attempt was made.
func (b *bench) blocked(t *testing.T, id, words string) {
	t.Helper()
	var waiting taskDone
	require.Eventually(t, func() bool {
		waiting = getTask(t, b.node.URL, id, "0s")
		return strings.Contains(waiting.Why, words)
	}, patience, 20*time.Millisecond, "%s waits because %s", id, words)
	require.Equal(t, api.TaskQueued, waiting.Status)
	require.Empty(t, waiting.Attempts)
	require.Empty(t, b.begins(id))
}

var gpu24 = api.Inventory{Devices: []api.Device{{Kind: "gpu", Vendor: "nvidia", Memory: "24Gi"}}}

func gpu(device string) map[string]any {
	return map[string]any{"place": map[string]any{"devices": []any{map[string]any{"kind": "gpu", "memory": device}}}}
}

func TestGPUsThatAreNotShared(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	for _, prefix := range []string{"a", "b"} {
		b.offering(t, plane.UniqueID(prefix), gpu24)
	}
	alone := map[string]any{"place": map[string]any{"devices": []any{map[string]any{"kind": "gpu", "memory": "8Gi",
		"share": false}}}}
	first := b.waitBegins(t, b.submit(t, alone), 1)
	second := b.waitBegins(t, b.submit(t, alone), 1)
	require.NotEqual(t, first[0].agent, second[0].agent)
	b.blocked(t, b.submit(t, alone), "too little is free of whole gpu memory 8Gi on 2 agents")
	b.waitBegins(t, b.submit(t, nil), 1) // other work goes on
	b.finish.Store(true)
}

// TestWhatFitsNowhereBeginsOnceAnAgentHasIt waits for the agent, not for the end of a backoff.
func TestWhatFitsNowhereBeginsOnceAnAgentHasIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	b.offering(t, plane.UniqueID("a"), gpu24)
	b.agent(t, plane.UniqueID("plain"))
	large := b.submit(t, gpu("64Gi"))
	b.blocked(t, large, "it lacks gpu memory 64Gi on 1 agent, resources that it tells of on 1 agent")
	for range 3 {
		b.waitBegins(t, b.submit(t, nil), 1)
	}
	b.blocked(t, large, "it lacks gpu memory 64Gi")
	able := plane.UniqueID("b")
	joined := time.Now()
	b.offering(t, able, api.Inventory{Devices: []api.Device{{Kind: "gpu", Memory: "80Gi"}}})
	begun := b.waitBegins(t, large, 1)
	t.Logf("it began %s after the agent that has it came", begun[0].at.Sub(joined).Round(time.Millisecond))
	require.Equal(t, able, begun[0].agent)
	b.finish.Store(true)
	require.Len(t, getTask(t, b.node.URL, large, "20s").Attempts, 1)
}

// TestStaticPortIsHadOnceOnAHost has two agents of one host, which is the test's.
func TestStaticPortIsHadOnceOnAHost(t *testing.T) {
	t.Parallel()
	port, err := freeport.Row(1)
	require.NoError(t, err)
	b := newBench(t, api.ClusterConfig{})
	for _, prefix := range []string{"a", "b"} {
		b.offering(t, plane.UniqueID(prefix), api.Inventory{})
	}
	static := map[string]any{"place": map[string]any{"ports": map[string]any{"http": map[string]any{"static": port}}}}
	first := b.submit(t, static)
	agentID := b.waitBegins(t, first, 1)[0].agent
	require.Equal(t, map[string]int{"http": port}, b.held(t, agentID)[first].Ports)
	second := b.submit(t, static)
	require.Eventually(t, func() bool {
		return strings.Contains(getTask(t, b.node.URL, second, "0s").Why,
			fmt.Sprintf("too little is free of port %d on 2 agents", port))
	}, patience, 20*time.Millisecond)
	require.Empty(t, b.begins(second))
	b.finish.Store(true)
	require.Equal(t, api.TaskCompleted, getTask(t, b.node.URL, second, "20s").Status)
}

func TestBadPlacesAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, api.ClusterConfig{})
	for want, place := range map[string]any{
		`place.devices[0].memory must be an amount of bytes, like "512Mi" or "4Gi"`: gpu("8 apples")["place"],
		`place.resources.cpu must be a number of cores, like "2", "0.5" or "500m"`: map[string]any{
			"resources": map[string]any{"cpu": "all"}},
		"place.ports must have different static ports": map[string]any{"ports": map[string]any{
			"a": map[string]any{"static": 80}, "b": map[string]any{"static": 80}}},
	} {
		status, problem := call(t, http.MethodPost, b.node.URL+"/api/v1/agents/tasks",
			map[string]any{"type": "hold", "cluster": b.cluster, "place": place}, nil)
		require.Equal(t, http.StatusUnprocessableEntity, status, fmt.Sprint(place))
		require.Contains(t, fmt.Sprintf("%+v", problem), want)
	}
}

// TestCommandsGetVolumesAndDevices runs where the volume is, and learns what it got.
func TestCommandsGetVolumesAndDevices(t *testing.T) {
	t.Parallel()
	c, folder := newCrew(t), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "weights"), nil, 0o600))
	c.offer = &api.Inventory{}
	c.agent(t, plane.UniqueID("plain"))
	c.offer = &api.Inventory{Volumes: []api.Volume{{Name: "models", Path: folder}},
		Devices: []api.Device{{Kind: "gpu", Index: 2}, {Kind: "gpu", Index: 3}, {Kind: "gpu", Index: 5}}}
	able := plane.UniqueID("able")
	c.agent(t, able)
	id := submit(t, c.node.URL, map[string]any{"cluster": c.cluster, "type": agent.ExecType,
		"payload": map[string]any{"command": []string{"sh", "-c",
			`echo "$CUDA_VISIBLE_DEVICES" "$(ls "$MAINSTAY_VOLUME_MODELS")"`}},
		"place": map[string]any{"volumes": []any{map[string]any{"name": "models"}},
			"devices": []any{map[string]any{"kind": "gpu", "count": 2, "share": false}}}})
	done := getTask(t, c.node.URL, id, "20s")
	require.Equal(t, api.TaskCompleted, done.Status, done.Why)
	require.Contains(t, string(done.Result), `"2,3 weights\n"`)
	require.Equal(t, able, done.Attempts[0].AgentID)
}
