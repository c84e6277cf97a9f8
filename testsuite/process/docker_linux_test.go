package process

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	moby "github.com/moby/moby/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/spawner/docker"
	"mainstay.dev/mainstay/testsuite/build"
	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

// engine is a Docker engine of a test's own, without a network but the machine's.
type engine struct {
	*moby.Client
	dir     string
	process *program
}

// testImage has no file but the agent of the tests.
const testImage = "mainstay-test:1"

func startEngine(t *testing.T) *engine {
	t.Helper()
	path, err := exec.LookPath("dockerd")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("no Docker engine can be started: it needs root, and dockerd in the PATH (Debian: docker.io)")
	}
	e := &engine{}
	e.dir, err = os.MkdirTemp("", "mainstay-docker-") //nolint:usetesting // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() {
		// An engine that is stopped while it makes a container leaves the container's keeper, and what that has begun.
		_ = exec.Command("sh", "-c", `for p in $(pgrep -f "$0"); do pkill -KILL -P $p; kill -KILL $p; done`,
			"[c]ontainerd-shim.*"+e.dir).Run()
		_ = syscall.Unmount(filepath.Join(e.dir, "exec/netns/default"), syscall.MNT_DETACH) // dockerd leaves it
		require.NoError(t, os.RemoveAll(e.dir))
	})
	e.Client, err = moby.New(moby.WithHost(e.address()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	e.start(t, path)
	t.Cleanup(func() { e.stop(t) })
	return e
}

func (e *engine) address() string { return "unix://" + filepath.Join(e.dir, "docker.sock") }

// start starts the engine. A test is skipped where it does not run at all.
func (e *engine) start(t *testing.T, path string) {
	t.Helper()
	ran := e.process != nil
	e.process = launch(t, nil, path, "--data-root", filepath.Join(e.dir, "data"), "--exec-root",
		filepath.Join(e.dir, "exec"), "--pidfile", filepath.Join(e.dir, "pid"), "-H", e.address(),
		"--log-level", "warn", "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
		"--ip-masq=false")
	for {
		_, err := e.Ping(t.Context(), moby.PingOptions{})
		if err == nil {
			return
		}
		select {
		case <-e.process.ended:
			lines := strings.Split(strings.TrimSpace(e.process.stderr.String()), "\n")
			require.False(t, ran, "dockerd does not start again: %s", lines[len(lines)-1])
			t.Skipf("dockerd does not run here: %s", lines[len(lines)-1])
		case <-t.Context().Done():
			t.Fatal("dockerd does not answer")
		case <-time.After(tick):
		}
	}
}

// stop ends the engine, and with it the containers.
func (e *engine) stop(t *testing.T) {
	t.Helper()
	e.process.signal(t, syscall.SIGTERM)
	e.process.exit(t)
	e.process.end(t)
}

// importImage makes an image of one static program.
func (e *engine) importImage(t *testing.T, program string) {
	t.Helper()
	archive, err := build.Image(program, testImage)
	require.NoError(t, err)
	loaded, err := e.ImageLoad(t.Context(), bytes.NewReader(archive))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, loaded)
	require.NoError(t, err)
}

// containers counts what the engine has, by state.
func (e *engine) containers(t assert.TestingT) map[container.ContainerState]int {
	list, err := e.ContainerList(context.Background(), moby.ContainerListOptions{All: true})
	assert.NoError(t, err)
	states := map[container.ContainerState]int{}
	for i := range list.Items {
		states[list.Items[i].State]++
	}
	return states
}

// yard is a control plane that asks for tokens, and a spawner of containers or pods.
type yard struct {
	*engine
	count   func(t assert.TestingT) int // of what runs
	hub     string
	name    string // of the cluster, the hub and the spawner
	api     *client.Client
	env     []string
	config  string
	spawner *program
}

// startSpawner starts the spawner anew, with the engine behind a socket.
func (y *yard) startSpawner(t *testing.T, socket string) {
	t.Helper()
	y.spawner = start(t, y.env, "serve", "--roles", "spawner", "--http", "127.0.0.1:0", "--config",
		y.configFor(t, socket), "--log-format", "json")
	y.spawner.says(t, `"msg":"Serving"`)
}

func (y *yard) configFor(t *testing.T, socket string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spawner.yaml")
	text := strings.ReplaceAll(y.config, "ENGINE", socket)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// scale asks until it is heard: on a busy machine Temporal may not answer in time.
func (y *yard) scale(t *testing.T, to int) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := y.api.Clusters.Scale(t.Context(), y.name, api.ScaleRequest{Desired: &to})
		assert.NoError(c, err)
	}, patience, tick)
}

// has waits until so many agents are online in so many running containers or pods, and no start is under way: the end
// of a container while it is being started is the failure of the start, not the end of an agent.
func (y *yard) has(t *testing.T, want int) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		agents, err := y.api.Agents.List(client.AgentQuery{Cluster: y.name, Status: api.AgentOnline}).Take(t.Context(), 0)
		assert.NoError(c, err)
		assert.Len(c, agents, want)
		assert.Equal(c, want, y.count(c))
		actions, err := y.api.Scalings.List(y.name).Take(t.Context(), 0)
		assert.NoError(c, err)
		assert.False(c, slices.ContainsFunc(actions, func(r api.ScalingRecord) bool {
			return r.Status == api.ScalingRunning
		}))
	}, patience, 100*time.Millisecond)
}

// running is a container and its agent.
func (y *yard) running(t *testing.T) (id, agent string) {
	t.Helper()
	list, err := y.ContainerList(t.Context(), moby.ContainerListOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, list.Items)
	return list.Items[0].ID, list.Items[0].Labels["dev.mainstay.spawn-id"]
}

// endOf waits until the spawner shows how an agent ended, and returns that.
func (y *yard) endOf(t *testing.T, agent string) (reason string) {
	t.Helper()
	require.Eventually(t, func() bool {
		spawners, err := y.api.Scalings.Spawners().Take(t.Context(), 0)
		for i := range spawners {
			for _, end := range spawners[i].Ended {
				if end.AgentID == agent {
					reason = end.Reason
				}
			}
		}
		return err == nil && reason != ""
	}, patience, 100*time.Millisecond)
	return reason
}

// TestContainersAreAgents runs agents in a real Docker engine, ends them in several ways, and counts containers.
func TestContainersAreAgents(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	y := newYard(t, "docked")
	y.startSpawner(t, y.address())

	y.scale(t, 5)
	y.has(t, 5)
	id, agent := y.running(t)
	y.requireConfined(t, id, agent)

	t.Log("a container that is killed is replaced; its task moves")
	task, err := y.api.Tasks.Submit(t.Context(), &api.TaskRequest{TaskSpec: api.TaskSpec{Type: "hold",
		Cluster: y.name}})
	require.NoError(t, err)
	holder := y.holder(t, task.ID, "")
	_, err = y.ContainerKill(t.Context(), "mainstay-"+holder, moby.ContainerKillOptions{Signal: "KILL"})
	require.NoError(t, err)
	y.holder(t, task.ID, holder)
	require.Equal(t, "its container was ended by SIGKILL", y.endOf(t, holder))
	y.saw(t, holder, "its container was ended by SIGKILL")
	y.has(t, 5)

	t.Log("a container that somebody removes is replaced")
	id, agent = y.running(t)
	_, err = y.ContainerRemove(t.Context(), id, moby.ContainerRemoveOptions{Force: true})
	require.NoError(t, err)
	y.saw(t, agent, "somebody removed its container")
	y.has(t, 5)

	t.Log("a container that takes too much memory is replaced")
	eater, err := y.api.Tasks.Submit(t.Context(), &api.TaskRequest{TaskSpec: api.TaskSpec{Type: "eat",
		Cluster: y.name, RetrySafety: api.AtMostOnce}})
	require.NoError(t, err)
	agent = y.holder(t, eater.ID, "")
	require.Equal(t, "its container was killed: it used more than its 64 MiB of memory", y.endOf(t, agent))
	y.has(t, 5)

	t.Log("a spawner that is killed leaves its agents alone, and the next one knows them")
	y.spawner.signal(t, syscall.SIGKILL)
	y.spawner.exit(t)
	require.Equal(t, 5, y.containers(t)[container.StateRunning])
	y.startSpawner(t, y.address())
	y.scale(t, 2)
	y.has(t, 2)

	t.Log("the engine restarts: its containers end, and are replaced")
	y.stop(t)
	path, err := exec.LookPath("dockerd")
	require.NoError(t, err)
	y.start(t, path)
	y.has(t, 2)

	t.Log("nothing is left")
	_, err = y.api.Tasks.Cancel(t.Context(), task.ID, "the test ends")
	require.NoError(t, err)
	y.scale(t, 0)
	y.requireNothing(t)
}

// TestDevRunsContainers has a machine's engine run the agents of `dev`, which Ctrl-C removes.
func TestDevRunsContainers(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	e := startEngine(t)
	nothing := filepath.Join(t.TempDir(), "nothing")
	require.NoError(t, os.WriteFile(nothing, nil, 0o600))
	e.importImage(t, nothing)
	env := []string{"DOCKER_HOST=" + e.address()}
	const nowhere = "127.0.0.1:1/agent:1"
	fails(t, env, 1, []string{"--platform docker: pull the image " + nowhere},
		append(devArgs(t.TempDir(), "127.0.0.1:0"), "--platform", "docker", "--image", nowhere)...)
	p, report := startDevIn(t, env, t.TempDir(), "127.0.0.1:0", "--platform", "docker", "--image", testImage,
		"--agents", "2")
	require.Equal(t, map[container.ContainerState]int{container.StateRunning: 2}, e.containers(t))
	require.NotContains(t, p.stderr.String(), "online", "they were waited for")
	id := submit(t, report.URL, map[string]any{"type": "exec", "cluster": "default",
		"payload": map[string]any{"command": []string{docker.ProgramPath, "version"}}})
	require.Contains(t, string(completed(t, report.URL, id, patience).Result), "mainstay ",
		"a program that only containers have")
	p.signal(t, syscall.SIGINT)
	require.Equal(t, 0, p.exit(t), "%s", &p.stderr)
	require.Empty(t, e.containers(t))
	e.requireNothing(t)
}

func TestDevNeedsAnEngine(t *testing.T) {
	t.Parallel()
	socket := "unix://" + filepath.Join(t.TempDir(), "none.sock")
	fails(t, []string{"DOCKER_HOST=" + socket}, 1,
		[]string{"--platform docker: look for the image: failed to connect to the docker API at " + socket},
		append(devArgs(t.TempDir(), "127.0.0.1:0"), "--platform", "docker")...)
}

// TestSpawnerDiesBetweenCreateAndStart has a spawner killed when it starts its container, which it has created.
func TestSpawnerDiesBetweenCreateAndStart(t *testing.T) {
	slow.Test(t)
	t.Parallel()
	y := newYard(t, "half-docked")
	socket := filepath.Join(y.dir, "proxy.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	var killed atomic.Bool
	behind := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "engine"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(y.dir, "docker.sock"))
		}},
	}
	proxy := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // of a test
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/start") {
			_ = y.spawner.command.Process.Signal(syscall.SIGKILL)
			killed.Store(true)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		behind.ServeHTTP(w, r)
	})}
	go func() { _ = proxy.Serve(listener) }()
	t.Cleanup(func() { _ = proxy.Close() })

	y.startSpawner(t, "unix://"+socket)
	y.scale(t, 1)
	y.spawner.exit(t)
	require.True(t, killed.Load())
	require.Equal(t, map[container.ContainerState]int{container.StateCreated: 1}, y.containers(t))
	y.startSpawner(t, y.address())
	y.has(t, 1)
	require.Equal(t, map[container.ContainerState]int{container.StateRunning: 1}, y.containers(t), "nothing is doubled")
	y.scale(t, 0)
	y.requireNothing(t)
}

func newYard(t *testing.T, name string) *yard {
	t.Helper()
	e := startEngine(t)
	e.importImage(t, containerAgent(t))
	y := newYardOn(t, name, "127.0.0.1", fmt.Sprintf(`docker: {engine: "ENGINE", image: %q, network: host}`, testImage),
		map[string]any{"platform": "docker", "resources": map[string]any{"cpu": "500m", "memory": "64Mi"},
			"docker": map[string]any{"pids_limit": 100}})
	y.engine, y.count = e, func(t assert.TestingT) int { return y.containers(t)[container.StateRunning] }
	return y
}

func containerAgent(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "agent")
	require.NoError(t, build.Go("build", "-ldflags", "-s -w", "-o", program,
		"mainstay.dev/mainstay/testsuite/process/containeragent"))
	return program
}

// newYardOn has the hub at an address, the spawner's platform as in its configuration, and that of a cluster's spawns.
func newYardOn(t *testing.T, name, address, platform string, spawn map[string]any) *yard {
	t.Helper()
	y := &yard{name: name}
	server, err := temporal()
	require.NoError(t, err)
	const admin = "0123456789abcdef0123456789abcdefADMIN"
	y.env = []string{"TEMPORAL_ADDRESS=" + server.Address(), tokenKey}
	plane := start(t, append(slices.Clone(y.env), "MAINSTAY_ADMIN_TOKEN="+admin), "serve", "--http", address+":0",
		"--hub-id", name, "--log-format", "json")
	y.hub = servedAt(t, plane)
	y.api, err = client.New(client.Options{URL: y.hub, Token: admin})
	require.NoError(t, err)
	y.config = fmt.Sprintf("spawner: {name: %s, platform: %s, hub_urls: [%q], stop_grace: 5s, %s}", name, spawn["platform"],
		y.hub, platform)
	spawn["spawner"], spawn["environment"] = name, map[string]any{"COLOUR": "blue"}
	spawn["backoff"] = map[string]any{"strategy": "constant", "delay": "1s"}
	_, err = y.api.Clusters.Create(t.Context(), client.Settings{"name": y.name, "max_agents": 10,
		"scaling": map[string]any{"mode": "manual", "spawn": spawn}})
	require.NoError(t, err)
	return y
}

// requireConfined looks at what a container may do, and for its join token where that may not be.
func (y *yard) requireConfined(t *testing.T, id, agent string) {
	t.Helper()
	found, err := y.ContainerInspect(t.Context(), id, moby.ContainerInspectOptions{})
	require.NoError(t, err)
	c := found.Container
	require.Equal(t, "/mainstay-"+agent, c.Name)
	h := c.HostConfig
	require.Equal(t, []int64{64 << 20, 64 << 20, 100_000, 50_000, 100},
		[]int64{h.Memory, h.MemorySwap, h.CPUPeriod, h.CPUQuota, *h.PidsLimit})
	require.True(t, h.ReadonlyRootfs)
	require.Equal(t, []string{"no-new-privileges"}, h.SecurityOpt)
	require.Equal(t, container.RestartPolicyDisabled, h.RestartPolicy.Name)
	require.Equal(t, "10m", h.LogConfig.Config["max-size"])
	require.Equal(t, y.name, c.Config.Labels["dev.mainstay.cluster"])
	require.Contains(t, c.Config.Env, "COLOUR=blue")
	all, err := json.Marshal(c)
	require.NoError(t, err)
	require.NotContains(t, string(all), "mss_")
	copied, err := y.CopyFromContainer(t.Context(), id, moby.CopyFromContainerOptions{SourcePath: "/run/mainstay/join-token"})
	require.NoError(t, err)
	defer func() { _ = copied.Content.Close() }()
	files := tar.NewReader(copied.Content)
	file, err := files.Next()
	require.NoError(t, err)
	require.Equal(t, []int64{0o600, 65532}, []int64{file.Mode & 0o777, int64(file.Uid)})
	token, err := io.ReadAll(files)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(token), "mss_"))
}

// holder waits until an agent, other than before, runs a task.
func (y *yard) holder(t *testing.T, task, before string) (agent string) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, err := y.api.Tasks.Get(t.Context(), task)
		if err != nil || len(got.Attempts) == 0 {
			return false
		}
		agent = got.Attempts[len(got.Attempts)-1].AgentID
		return agent != "" && agent != before
	}, patience, 50*time.Millisecond)
	return agent
}

// saw reads the events until one tells of an agent's end, with the reason.
func (y *yard) saw(t *testing.T, agent, reason string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for event, err := range y.api.Events(ctx, client.EventQuery{Clusters: []string{y.name},
		Types: []string{"agent.ended"}, Since: "10m"}) {
		require.NoError(t, err)
		if event.Data.AgentID == agent {
			require.Equal(t, reason, event.Data.Reason)
			return
		}
	}
	t.Fatal("no event tells of the end")
}

func (e *engine) requireNothing(t *testing.T) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Empty(c, e.containers(c))
		volumes, err := e.VolumeList(context.Background(), moby.VolumeListOptions{})
		assert.NoError(c, err)
		assert.Empty(c, volumes.Items)
	}, 2*patience, 200*time.Millisecond)
}
