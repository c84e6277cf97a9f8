package process

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/internal/cluster"
	"mainstay.dev/sdk/api"
)

// TestSupervisedAgentThatIsKilled kills an agent that runs fenced work: its supervisor proves its death, so the work
// waits for no lease, and starts it again. On a busy machine the hub may notice the closed connection first.
func TestSupervisedAgentThatIsKilled(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "hub-supervised")
	c := clusterNamed(t, url, "supervised")
	supervisor := runAgent(t, url, c, "supervised-1", "--supervise", "--restart-after", "50ms")
	var lost task
	for round := range 10 {
		pid := online(t, url, "supervised-1")
		require.NotEqual(t, supervisor.pid(), pid, "the agent is its supervisor's child")
		dir := t.TempDir()
		spec := execTask(c, `echo $$ >> "$0/begun"; until [ -e "$0/go" ]; do sleep 0.05; done`, dir)
		spec["retry_safety"] = "fenced"
		id := submit(t, url, spec)
		begun := func(n int) func() bool { return func() bool { return len(lines(dir+"/begun")) == n } }
		require.Eventually(t, begun(1), patience, tick)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		require.Eventually(t, begun(2), patience, tick, "the agent is started again")
		command, err := strconv.Atoi(lines(dir + "/begun")[0])
		require.NoError(t, err)
		require.False(t, alive(command), "what the agent ran has ended with it")
		require.NoError(t, touch(dir+"/go"))
		lost = completed(t, url, id, patience)
		t.Logf("round %d: %s", round, lost.Attempts[0].Reason)
		if strings.Contains(lost.Attempts[0].Reason, "proof of death") {
			break
		}
	}
	require.Equal(t, "proof of death by its supervisor: its process was ended by SIGKILL", lost.Attempts[0].Reason)
	require.Less(t, lost.Attempts[1].StartedAt.Sub(*lost.Attempts[0].EndedAt), cluster.DefaultTiming().FailureThreshold,
		"no lease has to run out")
	var records struct {
		Failovers []api.FailoverRecord `json:"failovers"`
	}
	require.Eventually(t, func() bool { // a server that another test has killed may have taken the failover's run with it
		call(t, http.StatusOK, http.MethodGet, url+"/api/v1/agents/failovers?agent=supervised-1", nil, &records)
		return slices.ContainsFunc(records.Failovers, func(f api.FailoverRecord) bool {
			return f.Evidence == api.EvidenceProof
		})
	}, patience, tick, "no record names the proof: %+v", &records)
	supervisor.signal(t, syscall.SIGTERM)
	require.Equal(t, 0, supervisor.exit(t), "%s", &supervisor.stderr)
}

func TestSupervisorEndsAsItsAgent(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "hub-supervisor")
	c := clusterNamed(t, url, "supervisor")
	p := runAgent(t, url, c, "supervisor-1", "--supervise")
	p.says(t, "Registered") // the supervisor has its session
	require.NoError(t, syscall.Kill(online(t, url, "supervisor-1"), syscall.SIGKILL))
	require.Equal(t, 128+int(syscall.SIGKILL), p.exit(t))
	p.says(t, "The agent has died; its hub knows")

	orphan := runAgent(t, url, c, "supervisor-2", "--supervise")
	pid := online(t, url, "supervisor-2")
	orphan.signal(t, syscall.SIGKILL)
	require.Eventually(t, func() bool { return !alive(pid) }, patience, tick, "an agent stops when its supervisor died")
	fails(t, nil, 3, []string{"no such cluster"}, "agent", "run", "--hub", url, "--cluster", "supervisor-nowhere",
		"--allow-exec", "--supervise", "--restart-after", "1ms")
}
