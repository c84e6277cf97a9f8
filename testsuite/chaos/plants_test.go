//go:build linux

package chaos

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mainstay.dev/sdk/api"
)

// scenario is a short course of events for one kind of bug. It returns what its oracles blame.
type scenario struct {
	cluster string // and mode
	agents  int
	run     func(*testing.T, *stage) []string
	// secured: the security of its installation is on.
	secured bool
	// plants are the bugs that the scenario must notice; see plantedBugs.
	plants []string
}

var scenarios = map[string]scenario{
	"forged token":       {clusterAll, 1, forgedToken, false, []string{"forged-token"}},
	"answer then crash":  {clusterAll, 1, answerThenCrash, false, []string{"early-answer"}},
	"fenced, cut off":    {clusterAll, 2, fencedCutOff, false, []string{"hub-ignores-lease", "agent-ignores-lease"}},
	"result comes late":  {clusterAll, 1, lateResult, false, []string{"stale-accepted"}},
	"hub restarts":       {clusterAll, 1, hubRestarts, false, []string{"reattach-dropped"}},
	"at most once":       {clusterAll, 2, atMostOnceKilled, false, []string{"run-again"}},
	"dead letter":        {clusterAll, 1, deadLetter, false, []string{"dead-letter-dropped"}},
	"killed with a tree": {clusterAll, 2, killedWithTree, false, []string{"tree-left"}},
	"frozen with a tree": {clusterAll, 2, frozenWithTree, false, []string{"guard-ignores-lease"}},
	"leader cut off":     {clusterLeader, 2, leaderCutOff, false, []string{"role-lease-ignored"}},
	"doubled assignment": {clusterAll, 1, doubledAssignment, false, []string{"duplicate-run"}},
	"drained":            {clusterAll, 1, drainedAgent, false, []string{"drain-ignores-work", "cordon-ignored"}},
	"degraded agent":     {clusterAll, 3, degradedAgent, false, []string{"healing-blind", "healing-forgets"}},
	"ill in maintenance": {clusterAll, 3, illInMaintenance, false, []string{"healing-overrides"}},
	"all agents ill":     {clusterAll, 3, allIll, false, []string{"healing-takes-all"}},
	"second process":     {clusterAll, 1, secondProcess, false, []string{"epoch-reused"}},
	"run, restarted": {clusterAll, 1, runThroughRestart, false,
		[]string{"dependency-ignored", "step-again", "wrong-output", "run-ends-early"}},
	"array, restarted":  {clusterAll, 1, arrayThroughRestart, false, []string{"element-again", "undone-completed"}},
	"array, agent lost": {clusterAll, 2, arrayLosesAgent, false, []string{"elements-bundled"}},
	"array, poison":     {clusterAll, 2, poisonInArray, false, []string{"bundle-blamed", "never-halved"}},
	"run, agent lost":   {clusterAll, 2, runLosesAgent, false, []string{"step-safety-dropped"}},
	"rollout, restarted": {clusterAll, 2, rollout, false,
		[]string{"old-stopped-early", "all-at-once", "rollout-stalls"}},
	"beside a tenant": {clusterAll, 2, besideAnother, true, []string{"tenant-unchecked"}},
}

// TestPlants runs scenarios as they should be, and then with each of their bugs planted: the first must be blamed for
// nothing, the second for something. -chaos.part chooses among the bugs.
func TestPlants(t *testing.T) {
	if testing.Short() {
		t.Skip("chaos: skipped by -short; it takes a minute or two")
	}
	var all []string
	for _, s := range scenarios {
		all = append(all, s.plants...)
	}
	planted := inPart(t, all)
	var mu sync.Mutex
	var caught []string
	t.Run("scenarios", func(t *testing.T) {
		for name, s := range scenarios {
			plants := slices.DeleteFunc(slices.Clone(s.plants), func(p string) bool { return !slices.Contains(planted, p) })
			if len(plants) == 0 {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				require.Empty(t, play(t, s, ""))
			})
			for _, plant := range plants {
				t.Run(name+", planted "+plant, func(t *testing.T) {
					t.Parallel()
					problems := play(t, s, plant)
					require.NotEmpty(t, problems, "the bug %s is not noticed", plant)
					t.Logf("%s: %s", plant, problems[0])
					mu.Lock()
					defer mu.Unlock()
					caught = append(caught, plant)
				})
			}
		}
	})
	t.Logf("planted bugs caught %d/%d: %s", len(caught), len(planted), strings.Join(planted, ", "))
	require.Len(t, caught, len(planted))
}

// scenarioLimit bounds one scenario.
const scenarioLimit = 90 * time.Second

// stage is a small installation for one scenario.
type stage struct {
	*installation
	ctx  context.Context
	jobs []*job
	runs []*jobRun

	arrays []*arrayWork
}

func play(t *testing.T, s scenario, plant string) []string {
	o := installOptions{timing: quickTiming, hubs: 1, secured: s.secured}
	if plant != "" {
		o.planted, o.env = true, []string{plantEnv + "=" + plant}
	}
	in := install(t, o) // builds programs, which takes minutes the first time
	ctx, stop := context.WithTimeout(t.Context(), scenarioLimit)
	defer stop()
	g := &stage{installation: in, ctx: ctx}
	g.addCluster(t, s.cluster, clusterModes[s.cluster])
	for i := range s.agents {
		g.addAgent(t, s.cluster, fmt.Sprintf("agent-%d", i), 4)
	}
	g.awaitFleet(t, []string{s.cluster}, 30*time.Second)
	return s.run(t, g)
}

// begin submits one task and waits until it has begun.
func (g *stage) begin(t *testing.T, j *job) line {
	t.Helper()
	g.jobs = append(g.jobs, j)
	j.key, j.cluster, j.work.Nonce = fmt.Sprintf("job-%d", len(g.jobs)), g.agents[0].cluster, fmt.Sprintf("nonce-%d",
		len(g.jobs))
	if j.safety == "" {
		j.safety = api.Idempotent
	}
	g.submit(g.ctx, j, 0)
	require.NotEmpty(t, j.id, "the task is not acknowledged")
	l, found := g.await(20*time.Second, func(l line) bool { return l.Kind == lineBegin && l.Task == j.id })
	require.True(t, found, "task %s does not begin", j.id)
	return l
}

// await waits for a line of the ledger.
func (g *stage) await(limit time.Duration, which func(line) bool) (line, bool) {
	for deadline := time.Now().Add(limit); ; {
		lines, err := g.book.read()
		if err != nil {
			return line{}, false
		}
		if i := slices.IndexFunc(lines, which); i >= 0 {
			return lines[i], true
		}
		if time.Now().After(deadline) || !pause(g.ctx, 20*time.Millisecond) {
			return line{}, false
		}
	}
}

// verdict waits until all tasks are settled, at most so long, and judges.
func (g *stage) verdict(t *testing.T, limit time.Duration) *verdict {
	t.Helper()
	g.settle(g.ctx, g.jobs, limit)
	lines, err := g.book.read()
	require.NoError(t, err)
	return judge(evidence{jobs: g.jobs, runs: g.runs, arrays: g.arrays, acked: g.acknowledged(), lines: lines,
		lives: g.lives()})
}

func (g *stage) agentNamed(id string) *member {
	return g.agents[slices.IndexFunc(g.agents, func(m *member) bool { return m.id == id })]
}

// forgedToken reports a result for somebody else's attempt, with its token changed to the thief's name.
func forgedToken(t *testing.T, g *stage) []string {
	g.begin(t, &job{work: work{MS: 1500}})
	m := g.agents[0]
	m.wire.mu.Lock()
	assigned := m.wire.assigned[len(m.wire.assigned)-1]
	m.wire.mu.Unlock()
	raw, err := base64.RawURLEncoding.DecodeString(assigned.Token)
	require.NoError(t, err)
	const mac = 32
	var claims map[string]any
	require.NoError(t, json.Unmarshal(raw[:len(raw)-mac], &claims))
	claims["a"], claims["i"] = "thief", "thief-instance"
	forged, err := json.Marshal(claims)
	require.NoError(t, err)
	var session struct {
		Token string `json:"session_token"`
	}
	status, err := g.call(0, http.MethodPost, "/api/v1/agents/register",
		map[string]any{"agent_id": "thief", "instance_id": "thief-instance", "cluster": m.cluster, "max_tasks": 1,
			"task_types": []string{"other"}}, &session)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	body, err := json.Marshal(map[string]any{
		"token":   base64.RawURLEncoding.EncodeToString(append(forged, raw[len(raw)-mac:]...)),
		"attempt": assigned.Attempt, "outcome": "completed",
		"output": done{Agent: "thief", Attempt: assigned.Attempt}, "started_at": time.Now().UTC(),
		"ended_at": time.Now().UTC(),
	})
	require.NoError(t, err)
	_, status, err = m.wire.send(g.ctx, http.MethodPost,
		g.planes[0].url+"/api/v1/agents/thief/tasks/"+assigned.TaskID+"/result", "Bearer "+session.Token, body)
	require.NoError(t, err)
	problems := g.verdict(t, 15*time.Second).problems
	if status == http.StatusOK {
		problems = append(problems, "a forged result was accepted")
	}
	return problems
}

// answerThenCrash kills the control plane as soon as an agent was told that its result is accepted.
func answerThenCrash(t *testing.T, g *stage) []string {
	g.begin(t, &job{work: work{MS: 300}})
	_, accepted := g.await(10*time.Second, func(l line) bool { return l.Kind == lineAccepted })
	require.True(t, accepted)
	g.planes[0].current().kill()
	g.planes[0].up()
	g.awaitReady(t, 0)
	return g.verdict(t, 25*time.Second).problems // a dead worker's workflows wait up to 15 s for another
}

// fencedCutOff cuts an agent with fenced work off the network until another has the work.
func fencedCutOff(t *testing.T, g *stage) []string {
	j := &job{safety: api.Fenced, work: work{MS: 6000}}
	first := g.begin(t, j)
	m := g.agentNamed(first.Agent)
	m.wire.set(wireCut)
	_, moved := g.await(20*time.Second, func(l line) bool { return l.Kind == lineBegin && l.PID != first.PID })
	require.True(t, moved, "the work moves")
	m.wire.set(wireGood)
	return g.verdict(t, 20*time.Second).problems
}

// lateResult sends a result again that was accepted before.
func lateResult(t *testing.T, g *stage) []string {
	g.begin(t, &job{work: work{MS: 200}})
	problems := g.verdict(t, 15*time.Second).problems
	refused, accepted := g.agents[0].wire.replay(g.ctx, 10)
	if refused == 0 || accepted > 0 {
		problems = append(problems, fmt.Sprintf("of the replayed results %d were refused and %d accepted", refused,
			accepted))
	}
	if counted := g.metric(t, "mainstay_hub_stale_results_total"); int(counted) < refused {
		problems = append(problems, fmt.Sprintf("%d stale results were refused, %.0f were counted", refused, counted))
	}
	return problems
}

// hubRestarts kills the control plane under running work, which must go on in its agent.
func hubRestarts(t *testing.T, g *stage) []string {
	const heard = 2 * time.Second // by then the agent has registered with the new process
	for ms := 4000; ; ms *= 2 {   // on a busy machine a short attempt ends before the new process is there
		first := g.begin(t, &job{safety: api.AtMostOnce, work: work{MS: ms}})
		g.planes[0].current().kill()
		g.planes[0].up()
		g.awaitReady(t, 0)
		outlasted := time.Now().Add(heard)
		end, ended := g.await(time.Duration(ms)*time.Millisecond+15*time.Second, func(l line) bool {
			return l.Kind == lineEnd && l.Task == first.Task
		})
		require.True(t, ended)
		if end.Note != "done" || end.PID != first.PID {
			return []string{"the attempt was " + end.Note + " by the restart of its hub"}
		}
		if time.Now().After(outlasted) || ms > 8000 {
			break
		}
	}
	v := g.verdict(t, 10*time.Second)
	if v.outcomes[api.TaskCompleted] != len(g.jobs) {
		v.problems = append(v.problems, "a task did not complete: "+outcomes(v.outcomes))
	}
	return v.problems
}

// atMostOnceKilled kills the agent of a task that must not begin twice.
func atMostOnceKilled(t *testing.T, g *stage) []string {
	first := g.begin(t, &job{safety: api.AtMostOnce, work: work{MS: 2000}})
	g.agentNamed(first.Agent).current().kill()
	v := g.verdict(t, api.DefaultDisconnectGrace+30*time.Second)
	if v.outcomes[api.TaskReview] != 1 {
		v.problems = append(v.problems, "the task is not in review: "+outcomes(v.outcomes))
	}
	return v.problems
}

// killedWithTree kills the agent of a fenced command with children and grandchildren, and waits until another runs it.
func killedWithTree(t *testing.T, g *stage) []string {
	first := g.beginTree(t)
	g.agentNamed(first.Agent).current().kill()
	g.awaitNextTree(t, first)
	return g.verdict(t, 30*time.Second).problems
}

// frozenWithTree stops the agent of such a command until another runs it: the lease of the command's processes ends as
// well.
func frozenWithTree(t *testing.T, g *stage) []string {
	first := g.beginTree(t)
	p := g.agentNamed(first.Agent).current()
	p.freeze()
	g.awaitNextTree(t, first)
	pause(g.ctx, time.Second) // both write for a while, if the first lives on
	p.thaw()
	return g.verdict(t, 30*time.Second).problems
}

// beginTree begins a fenced command and waits until its deepest process lives.
func (g *stage) beginTree(t *testing.T) line {
	t.Helper()
	g.begin(t, &job{safety: api.Fenced, work: work{MS: 12_000, Tree: true}})
	l, found := g.await(20*time.Second, func(l line) bool { return l.Kind == lineLeafBegin && l.Note == "grandchild" })
	require.True(t, found, "the command begins its grandchild")
	return l
}

func (g *stage) awaitNextTree(t *testing.T, first line) {
	t.Helper()
	_, found := g.await(30*time.Second, func(l line) bool {
		return l.Kind == lineLeafBegin && l.Attempt != first.Attempt && l.Note == first.Note
	})
	require.True(t, found, "the work moves")
}

// deadLetter lets a task fail until it is a dead letter, and retries it.
func deadLetter(t *testing.T, g *stage) []string {
	j := &job{work: work{MS: 50, Fail: failAlways}}
	g.begin(t, j)
	v := g.verdict(t, 20*time.Second)
	if j.task.Status != api.TaskDeadLetter {
		return append(v.problems, "the task is no dead letter: "+outcomes(v.outcomes))
	}
	g.checkDeadLetters(t, g.jobs)
	return v.problems
}

// leaderCutOff cuts the leader off the network until another leads.
func leaderCutOff(t *testing.T, g *stage) []string {
	first, found := g.await(20*time.Second, func(l line) bool { return l.Kind == lineLead })
	require.True(t, found, "somebody leads")
	g.begin(t, &job{work: work{MS: 500}})
	m := g.agentNamed(first.Agent)
	m.wire.set(wireCut)
	_, found = g.await(20*time.Second, func(l line) bool { return l.Kind == lineLead && l.PID != first.PID })
	require.True(t, found, "another leads")
	_, found = g.await(20*time.Second, func(l line) bool { return l.Kind == lineLeadEnd && l.PID == first.PID })
	require.True(t, found, "the first notices that its lease is over")
	m.wire.set(wireGood)
	g.begin(t, &job{work: work{MS: 100}})
	return g.verdict(t, 20*time.Second).problems
}

// doubledAssignment lets every assignment arrive twice.
func doubledAssignment(t *testing.T, g *stage) []string {
	m := g.agents[0]
	m.wire.set(wireDouble)
	g.begin(t, &job{work: work{MS: 3000}})
	require.Eventually(t, func() bool {
		m.wire.mu.Lock()
		defer m.wire.mu.Unlock()
		return m.wire.repeated > 0
	}, 10*time.Second, 20*time.Millisecond, "the assignment comes twice")
	m.wire.set(wireGood)
	v := g.verdict(t, 20*time.Second)
	if m := fmt.Sprint(v.outcomes); v.outcomes[api.TaskCompleted] != 1 {
		v.problems = append(v.problems, "the task did not complete: "+m)
	}
	return v.problems
}

// secondProcess starts a second process under an agent's id.
func secondProcess(t *testing.T, g *stage) []string {
	m := g.agents[0]
	first := m.up(t)
	second := m.current()
	_, found := g.await(10*time.Second, func(l line) bool { return l.Kind == lineRegistered && l.PID == second.pid })
	v := g.verdict(t, time.Second)
	if !found {
		v.problems = append(v.problems, "the second process is not taken")
	}
	select {
	case <-first.gone:
	case <-time.After(10 * time.Second):
		v.problems = append(v.problems, "the first process is not fenced")
	}
	return v.problems
}
