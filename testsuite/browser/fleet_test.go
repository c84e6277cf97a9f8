package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

var clusterNumber atomic.Int32

// fleet is one test's own part of the shared control plane.
type fleet struct {
	testing.TB
	devReport
	cluster string
	pids    map[string]int
}

// newFleet makes a cluster with agents that run as processes of their own.
func newFleet(t testing.TB, settings map[string]any, agents ...string) *fleet {
	t.Helper()
	return newFleetOf(t, theDev, settings, agents...)
}

// newFleetOf is newFleet in a certain control plane.
func newFleetOf(t testing.TB, start func() (devReport, error), settings map[string]any, agents ...string) *fleet {
	t.Helper()
	browserFor(t)
	dev, err := start()
	require.NoError(t, err)
	f := &fleet{TB: t, devReport: dev, cluster: fmt.Sprintf("web-%d", clusterNumber.Add(1)), pids: map[string]int{}}
	body := map[string]any{"name": f.cluster}
	for key, value := range settings {
		body[key] = value
	}
	f.call(http.MethodPost, "/clusters", body, nil)
	for _, id := range agents {
		f.agent(id)
	}
	for _, id := range agents {
		require.True(t, eventually(func() bool { return f.status(id) == "online" }), "agent %s never came online", id)
	}
	return f
}

// name is an agent's id in the whole control plane.
func (f *fleet) name(agent string) string { return f.cluster + "-" + agent }

// agent starts an agent that is killed with the test.
func (f *fleet) agent(agent string, more ...string) {
	f.Helper()
	path, err := binary()
	require.NoError(f, err)
	args := []string{"agent", "run", "--hub", f.URL, "--cluster", f.cluster, "--id", f.name(agent), "--slots", "2",
		"--allow-exec"}
	args = append(args, more...)
	if f.joinFile != "" {
		args = append(args, "--join-token-file", f.joinFile)
	}
	command := exec.Command(path, args...)
	command.Env = plainEnvironment()
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(f, command.Start())
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	f.pids[agent] = command.Process.Pid
	f.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		<-ended
	})
}

// illAgent starts an agent that says it has disk errors once ill is called, and waits until its cluster knows that.
func (f *fleet) illAgent(agent string) (ill func()) {
	f.Helper()
	file := filepath.Join(f.TempDir(), "health")
	f.agent(agent, "--health-file", file)
	require.True(f, eventually(func() bool { return f.status(agent) == "online" }), "agent %s never came online", agent)
	return func() {
		require.NoError(f, os.WriteFile(file, []byte("0.3 disk errors"), 0o600))
		require.True(f, eventually(func() bool {
			type decision struct {
				TargetID string `json:"target_id"`
				Verdict  string
			}
			var cycle struct{ Decisions []decision }
			f.call(http.MethodPost, "/healing/trigger", map[string]any{"cluster": f.cluster, "dry_run": true}, &cycle)
			return slices.ContainsFunc(cycle.Decisions, func(d decision) bool {
				return d.TargetID == f.name(agent) && d.Verdict != "waiting"
			})
		}), "healing never saw that agent %s is ill", agent)
	}
}

// kill ends an agent's process at once.
func (f *fleet) kill(agent string) {
	f.Helper()
	require.NoError(f, syscall.Kill(-f.pids[agent], syscall.SIGKILL))
}

func (f *fleet) status(agent string) string {
	var list struct {
		Agents []struct{ ID, Status string }
	}
	f.call(http.MethodGet, "?cluster="+f.cluster, nil, &list)
	for _, a := range list.Agents {
		if a.ID == f.name(agent) {
			return a.Status
		}
	}
	return ""
}

// call calls the API below /api/v1/agents. On a busy machine the control plane may answer 503, which asks to try again.
// The first try may have worked all the same: then the next one finds it done.
func (f *fleet) call(method, path string, body, out any) {
	f.Helper()
	var text []byte
	status, tries := 0, 0
	eventually(func() bool {
		status, text = f.try(method, path, body)
		tries++
		return status != http.StatusServiceUnavailable
	})
	done := map[string]int{http.MethodPost: http.StatusConflict, http.MethodDelete: http.StatusNotFound}[method]
	if tries > 1 && status == done && out == nil {
		return
	}
	require.Less(f, status, 300, "%s %s: %s", method, path, text)
	if out != nil {
		require.NoError(f, json.Unmarshal(text, out), "%s", text)
	}
}

// try sends one request.
func (f *fleet) try(method, path string, body any) (status int, answer []byte) {
	f.Helper()
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		require.NoError(f, err)
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(f.Context(), method, f.URL+"/api/v1/agents"+path, reader)
	require.NoError(f, err)
	if f.token != "" {
		request.Header.Set("Authorization", "Bearer "+f.token)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(f, err)
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	require.NoError(f, err)
	return response.StatusCode, answer
}

// submit submits a shell script as a task.
func (f *fleet) submit(id, script string, more map[string]any) string {
	f.Helper()
	spec := map[string]any{"id": f.cluster + "-" + id, "type": "exec", "cluster": f.cluster,
		"payload": map[string]any{"command": []string{"sh", "-c", script}}}
	for key, value := range more {
		spec[key] = value
	}
	f.call(http.MethodPost, "/tasks", spec, nil)
	return f.cluster + "-" + id
}

// becomes waits until a task has a status.
func (f *fleet) becomes(task, status string) {
	f.Helper()
	var got struct{ Status, Why string }
	require.True(f, eventually(func() bool {
		f.call(http.MethodGet, "/tasks/"+task, nil, &got)
		return got.Status == status
	}), "task %s is %s (%s), not %s", task, got.Status, got.Why, status)
}
