package process

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tick is how often a condition is looked at.
const tick = 10 * time.Millisecond

// execTask runs a shell script with a folder as $0.
func execTask(cluster, script, dir string) map[string]any {
	return map[string]any{"type": "exec", "cluster": cluster,
		"payload": map[string]any{"command": []string{"sh", "-c", script, dir}}}
}

func touch(path string) error { return os.WriteFile(path, nil, 0o600) }

func TestAgentWithoutAHubKeepsTrying(t *testing.T) {
	t.Parallel()
	nowhere := "http://" + freeAddress(t)
	patient := runAgent(t, nowhere, "default", "patient")
	patient.says(t, "The hub cannot be used; trying again, work goes on meanwhile")
	patient.says(t, "connection refused")
	require.Eventually(t, func() bool { // its probes are at 127.0.0.1:9091, unless something else is there
		return probed(t, "127.0.0.1:9091", "patient") ||
			strings.Contains(patient.stderr.String(), "There are no health probes of this agent")
	}, patience, tick)
	chosen := runAgent(t, nowhere, "default", "probed", "--health", "127.0.0.1:0")
	chosen.says(t, "Health probes are served")
	address := regexp.MustCompile(`Health probes are served.*?(127\.0\.0\.1:\d+)`).FindStringSubmatch(chosen.stderr.String())
	require.NotNil(t, address, "%s", &chosen.stderr)
	require.Eventually(t, func() bool { return probed(t, address[1], "probed") }, patience, tick)

	begun := time.Now()
	fails(t, nil, 4, []string{"gave up: no hub has answered for too long"}, "agent", "run", "--hub", nowhere,
		"--allow-exec", "--give-up-after", "1s")
	require.GreaterOrEqual(t, time.Since(begun), time.Second)

	require.True(t, alive(patient.pid()), "without --give-up-after it never gives up")
	patient.signal(t, syscall.SIGTERM)
	require.Equal(t, 0, patient.exit(t), "%s", &patient.stderr)
}

// probed reports whether the probes of an agent that no hub has are at an address.
func probed(t *testing.T, address, id string) bool {
	t.Helper()
	response, err := http.Get("http://" + address + "/health")
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	var status struct {
		AgentID string `json:"agent_id"`
	}
	return json.NewDecoder(response.Body).Decode(&status) == nil && status.AgentID == id &&
		response.StatusCode == http.StatusServiceUnavailable
}

func TestAgentIsRefused(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "hub-refused")
	here, there := clusterNamed(t, url, "refused-here"), clusterNamed(t, url, "refused-there")
	runAgent(t, url, here, "refused-1")
	online(t, url, "refused-1")
	fails(t, nil, 3, []string{"no such cluster", "unknown_cluster"}, "agent", "run", "--hub", url, "--cluster",
		"refused-nowhere", "--id", "refused-2", "--allow-exec")
	fails(t, nil, 5, []string{"another cluster has this agent id online", "agent_id_in_use"}, "agent", "run", "--hub",
		url, "--cluster", there, "--id", "refused-1", "--allow-exec")
}

func TestSecondProcessFencesTheFirst(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "hub-fence")
	c := clusterNamed(t, url, "fence")
	first := runAgent(t, url, c, "fence-1")
	require.Equal(t, first.pid(), online(t, url, "fence-1"))
	second := runAgent(t, url, c, "fence-1")
	require.Equal(t, 5, first.exit(t), "%s", &first.stderr)
	require.Contains(t, first.stderr.String(), "a newer process has this agent id")
	require.Eventually(t, func() bool { return online(t, url, "fence-1") == second.pid() }, patience, tick)
}

// A leader that gets SIGTERM while a command of 20 s runs on it does not hold the lead up.
func TestAStoppingLeaderIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "hub-stopping")
	p := start(t, nil, "cluster", "create", "stopping", "--replication-mode", "active_passive", "--server", url)
	require.Equal(t, 0, p.exit(t), "%s", &p.stderr)
	leads := func(id string) func() bool {
		return func() bool {
			var view struct{ Leader string }
			call(t, http.StatusOK, http.MethodGet, url+"/api/v1/agents/clusters/stopping", nil, &view)
			return view.Leader == id
		}
	}
	leader := runAgent(t, url, "stopping", "stopping-1", "--health", "127.0.0.1:0")
	require.Eventually(t, leads("stopping-1"), patience, tick)
	runAgent(t, url, "stopping", "stopping-2")
	online(t, url, "stopping-2")
	dir := t.TempDir()
	id := submit(t, url, execTask("stopping", `touch "$0/begun"; sleep 20`, dir))
	require.Eventually(t, func() bool { _, err := os.Stat(dir + "/begun"); return err == nil }, patience, tick)
	leader.says(t, "Health probes are served")
	address := regexp.MustCompile(`Health probes are served.*?(127\.0\.0\.1:\d+)`).FindStringSubmatch(leader.stderr.String())
	require.NotNil(t, address, "%s", &leader.stderr)

	began := time.Now()
	leader.signal(t, syscall.SIGTERM)
	require.Eventually(t, leads("stopping-2"), patience, tick)
	t.Logf("the next agent leads after %s", time.Since(began))
	require.Less(t, time.Since(began), 10*time.Second, "it waited for the command")
	response, err := http.Get("http://" + address[1] + "/readyz")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	next := completed(t, url, submit(t, url, execTask("stopping", "true", dir)), patience)
	require.Equal(t, "stopping-2", next.Attempts[0].AgentID)
	require.True(t, alive(leader.pid()), "it finishes its work")
	require.Equal(t, 0, leader.exit(t), "%s", &leader.stderr)
	require.Len(t, completed(t, url, id, patience).Attempts, 1)
}

func TestAgentFinishesItsWorkAtSIGTERM(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "hub-term")
	c := clusterNamed(t, url, "term")
	agent := runAgent(t, url, c, "term-1")
	online(t, url, "term-1")
	dir := t.TempDir()
	id := submit(t, url, execTask(c, `touch "$0/begun"; until [ -e "$0/go" ]; do sleep 0.05; done; echo finished`, dir))
	require.Eventually(t, func() bool { _, err := os.Stat(dir + "/begun"); return err == nil }, patience, tick)
	agent.signal(t, syscall.SIGTERM)
	agent.says(t, "Stopping")
	waiting := submit(t, url, execTask(c, "true", dir))
	require.NoError(t, touch(dir+"/go"))
	require.Equal(t, 0, agent.exit(t), "%s", &agent.stderr)
	done := completed(t, url, id, patience)
	require.Len(t, done.Attempts, 1)
	require.Contains(t, string(done.Result), "finished")

	runAgent(t, url, c, "term-2")
	done = completed(t, url, waiting, patience)
	require.Equal(t, "term-2", done.Attempts[0].AgentID, "a stopping agent must take nothing new")
}
