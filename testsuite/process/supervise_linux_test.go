package process

import (
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"mainstay.dev/mainstay/fleet"
)

// TestSupervisedAgentThatIsKilled kills an agent that runs fenced work: its supervisor proves its death, so the work
// waits for no lease, and starts it again. On a busy machine the hub may notice the closed connection first.
func TestSupervisedAgentThatIsKilled(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "hub-supervised")
	c := cluster(t, url, "supervised")
	supervisor := runAgent(t, url, c, "supervised-1", "--supervise", "--restart-after", "50ms")
	var lost task
	proven := false
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
		waited := lost.Attempts[1].StartedAt.Sub(*lost.Attempts[0].EndedAt)
		t.Logf("round %d: %s; %s until it ran again", round, lost.Attempts[0].Reason, waited)
		// A server that another test kills may take what it was asked with it, which delays a round by seconds.
		proven = lost.Attempts[0].Reason == "proof of death by its supervisor: its process was ended by SIGKILL" &&
			waited < fleet.DefaultTiming().FailureThreshold
		if proven {
			break
		}
	}
	require.True(t, proven, "in no round did the work move by the proof, before a lease ran out: %+v", lost.Attempts)
	var records struct {
		Failovers []fleet.FailoverRecord `json:"failovers"`
	}
	require.Eventually(t, func() bool { // the run of the failover may be with such a server
		call(t, http.StatusOK, http.MethodGet, url+"/api/v1/agents/failovers?agent=supervised-1", nil, &records)
		return slices.ContainsFunc(records.Failovers, func(f fleet.FailoverRecord) bool {
			return f.Evidence == fleet.EvidenceProof
		})
	}, patience, tick, "no record names the proof: %+v", &records)
	supervisor.signal(t, syscall.SIGTERM)
	require.Equal(t, 0, supervisor.exit(t), "%s", &supervisor.stderr)
}

func TestSupervisorEndsAsItsAgent(t *testing.T) {
	t.Parallel()
	_, url := serve(t, "hub-supervisor")
	c := cluster(t, url, "supervisor")
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
