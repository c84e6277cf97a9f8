//go:build linux

package chaos

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"mainstay.dev/mainstay/testsuite/slow"
	"mainstay.dev/sdk/api"

	"github.com/stretchr/testify/require"
)

// settleLimit bounds the time from the end of the last fault until every task is settled: an attempt that a dying hub
// took from its lane and gave to nobody ends with its backstop, and fenced work then waits as long again for the lease
// that nobody knows.
const settleLimit = 2*api.AttemptBackstop + 30*time.Second

// backlog is how much longer so many tasks may take: faults leave more work behind the longer they go on, and two cores
// begin about a dozen tasks a second, with all that waits beside them.
func backlog(tasks int) time.Duration {
	return time.Duration(max(0, tasks-1000)) * 100 * time.Millisecond
}

// TestChaos breaks a whole installation for a while, heals it, and holds the API to what the agents wrote down.
func TestChaos(t *testing.T) {
	slow.Test(t)
	tm := quickTiming
	if *flagDefaults {
		tm = defaultTiming
	}
	t.Logf("seed %d: repeat with go test ./testsuite/chaos -run '^TestChaos$' -v -args -chaos.seed=%d -chaos.duration=%s -chaos.tasks=%d -chaos.runs=%d -chaos.arrays=%d -chaos.agents=%d -chaos.default-timing=%t -chaos.only=%q",
		*flagSeed, *flagSeed, *flagDuration, *flagTasks, *flagRuns, *flagArrays, *flagAgents, *flagDefaults, *flagOnly)
	jobs := planJobs(rand.New(rand.NewPCG(*flagSeed, 1)), *flagTasks, *flagDuration)
	runs := planRuns(rand.New(rand.NewPCG(*flagSeed, 3)), *flagRuns, *flagDuration)
	arrays := planArrays(rand.New(rand.NewPCG(*flagSeed, 4)), *flagArrays, *flagDuration)
	network, err := newNetwork(t)
	if err != nil {
		t.Logf("no partitions by network namespaces: %v. Partitions are made by the agents' proxies alone", err)
		network = nil
	}
	kinds := possibleFaults(*flagDuration, network != nil, *flagOnly)
	require.NotEmpty(t, kinds, "no fault has %q in its name that can be had here and in this time; there are %q",
		*flagOnly, faultKinds)
	faults := planFaults(rand.New(rand.NewPCG(*flagSeed, 2)), kinds, *flagAgents, *flagDuration, tm)
	for _, f := range faults {
		t.Log(f)
	}
	in := install(t, installOptions{timing: tm, net: network})
	in.healing = true
	clusters := []string{clusterAll, clusterLeader, clusterShards}
	slots := map[string]int{clusterAll: 4 + serviceCount + 2, clusterLeader: 4, clusterShards: 4} // instances use some
	for _, name := range clusters {
		in.addCluster(t, name, clusterModes[name])
	}
	for i := range *flagAgents {
		in.addAgent(t, clusters[i%len(clusters)], fmt.Sprintf("agent-%d", i), slots[clusters[i%len(clusters)]])
	}
	in.awaitFleet(t, clusters, 30*time.Second)
	in.addJob(t, clusterAll)
	services := in.planServices(clusterAll)
	in.addServices(t, services)
	in.hurryHealing(t)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	watch := in.watch(ctx, t, clusters)
	x := newInjector(t, in)
	x.looks = in.watchFleet(ctx, t)
	submitted := make(chan struct{})
	go func() {
		var both sync.WaitGroup
		both.Go(func() { in.submitAll(ctx, jobs) })
		both.Go(func() { in.dispatchAll(ctx, runs) })
		both.Go(func() { in.submitArrays(ctx, arrays) })
		both.Go(func() { in.rollServices(ctx, services, *flagDuration) })
		both.Wait()
		close(submitted)
	}()
	x.run(ctx, faults)
	x.heal(t)
	healed := time.Now()
	fleetTime := in.awaitFleet(t, clusters, convergeLimit(tm))
	<-submitted
	jobs = append(jobs, x.proofs...)
	limit := settleLimit + backlog(len(jobs))
	open := in.settle(ctx, jobs, limit)
	openRuns := in.settleRuns(ctx, runs, limit)
	openArrays := in.settleArrays(ctx, arrays, limit, true)
	in.settleServices(ctx, t, services, limit)
	settleTime := time.Since(healed)
	slotsTime := in.awaitSlots(t)

	refused, accepted := 0, 0
	stale := in.metric(t, "mainstay_hub_stale_results_total")
	for _, m := range in.agents {
		r, a := m.wire.replay(ctx, 10)
		refused, accepted = refused+r, accepted+a
	}
	stale = in.metric(t, "mainstay_hub_stale_results_total") - stale
	stop()
	x.looks.stop()
	lines, err := in.book.read()
	require.NoError(t, err)
	actions, err := in.healingActions()
	require.NoError(t, err)
	e := evidence{jobs: jobs, runs: runs, arrays: arrays, services: services, instances: in.instancesOf(services, lines), acked: in.acknowledged(), lines: lines, lives: in.lives(), fell: watch.fell, drains: x.drains,
		away: x.away, illnesses: x.illnesses, looks: x.looks.all(), actions: actions}
	defer func() {
		if t.Failed() {
			keep(t, in, e)
		}
	}()
	v := judge(e)
	letters := in.checkDeadLetters(t, jobs)

	unsure, doubled, repeated := 0, 0, 0
	for _, j := range jobs {
		unsure += j.unsure
	}
	for _, m := range in.agents {
		doubled, repeated = doubled+m.wire.doubled, repeated+m.wire.repeated
	}
	quiet, troubled := failoverTimes(x.kills, x.away, lines, jobs)
	t.Logf(`chaos summary
seed %d, %s of faults, %d agents, 2 control plane processes
%stasks acknowledged %d of %d (%d submissions without an answer): %s
lost %d · double begins %d · fenced overlaps %d · leaders at once %d · epoch faults %d · result faults %d · drain faults %d (of %d drains, %d with nothing else broken) · healing faults %d
%s
begins %d, %d processes of commands · results accepted %d · stale results rejected %d by agents' own late reports, %d of %d replayed (counted: %.0f)
%s
%s
%s
results delivered twice %d · assignments delivered twice %d · dead letters retried %d
fenced work after SIGCONT ran on for %s at most · epochs watched %d times
agent SIGKILL to the next begin elsewhere, idempotent work: %s; with the control plane killed too: %s
fleet converged %.1f s after the last fault (limit %s), tasks settled after %.1f s (limit %s), all slots back after %.1f s more`,
		*flagSeed, *flagDuration, *flagAgents, x.report(), v.acknowledged, len(jobs), unsure, outcomes(v.outcomes),
		v.lost, v.doubleBegins, v.overlaps, v.leaderOverlaps, v.epochFaults, v.resultFaults, v.drainFaults,
		len(x.drains), calm(x.drains), v.healingFaults, v.healingLine(e),
		len(attemptsOf(lines)), v.leaves, v.accepted, v.stale, refused, refused+accepted, stale,
		v.runsLine(len(runs)), v.arraysLine(len(arrays)), v.servicesLine(),
		doubled, repeated, letters, v.afterThaw.Round(time.Millisecond), watch.looks,
		spread(quiet), spread(troubled),
		fleetTime.Seconds(), convergeLimit(tm), settleTime.Seconds(), limit, slotsTime.Seconds())
	require.Empty(t, v.problems)
	require.Zero(t, open)
	require.Zero(t, openRuns)
	require.Zero(t, openArrays)
	require.Equal(t, len(jobs), v.acknowledged, "every submission is acknowledged in the end")
	require.Positive(t, refused, "some result was replayed and refused")
	require.Zero(t, accepted, "a replayed result was accepted")
	require.GreaterOrEqual(t, int(stale), refused, "refused results are counted")
	require.Positive(t, x.total(), "some fault hit work in flight")
}

// convergeLimit is I9: lease, grace and two polls after the last fault; the lease is the longest there is, a hub's.
func convergeLimit(tm timing) time.Duration {
	return max(hubLease, tm.Failure) + tm.Grace + 2*tm.Heartbeat
}

// hubLease is how long a hub that is gone keeps its agents.
const hubLease = 10 * time.Second

// awaitFleet waits until every agent is online, one leads, and every shard has an owner. Agents that healing keeps out
// of service are not missing while they are really not well, as after many late heartbeats.
func (in *installation) awaitFleet(t testing.TB, clusters []string, limit time.Duration) time.Duration {
	t.Helper()
	begun := time.Now()
	missing := ""
	for whole := false; !whole; {
		whole = true
		seen := in.look(0)
		for i, name := range clusters {
			var c clusterView
			want := 0
			for _, m := range in.agents {
				if m.cluster == name {
					want++
				}
				if a := seen.of(m.id); a != nil && m.cluster == name && a.out(true) {
					want-- // often taken out, it must be healthy for up to hours before healing gives it work again
				}
			}
			status, err := in.call(i, http.MethodGet, "/api/v1/agents/clusters/"+name, nil, &c)
			good := err == nil && status == http.StatusOK && c.HealthyAgentCount == want &&
				(name != clusterLeader || c.Leader != "")
			for _, s := range c.ShardOwners {
				good = good && s.Owner != ""
			}
			if !good {
				whole, missing = false, fmt.Sprintf("cluster %s: %+v (%d agents), %v", name, c, want, err)
			}
		}
		if !whole && time.Since(begun) > limit {
			t.Errorf("the fleet is not whole after %s: %s", limit, missing)
			return time.Since(begun)
		}
		pause(t.Context(), 50*time.Millisecond)
	}
	return time.Since(begun)
}

// lives is what the driver knows of the agents' processes.
func (in *installation) lives() lifetimes {
	in.mu.Lock()
	defer in.mu.Unlock()
	lives := lifetimes{}
	for pid, of := range in.processes {
		for _, p := range of {
			p.mu.Lock()
			lives[pid] = append(lives[pid], life{gone: p.goneAt, frozen: p.frozen})
			p.mu.Unlock()
		}
	}
	return lives
}

// metric sums a metric over the control plane's processes.
func (in *installation) metric(t testing.TB, name string) float64 {
	t.Helper()
	var sum float64
	for _, p := range in.planes {
		response, err := in.client.Get(p.url + "/metrics")
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		require.NoError(t, err)
		for _, text := range strings.Split(string(body), "\n") {
			var value float64
			if rest, ok := strings.CutPrefix(text, name+" "); ok {
				_, err := fmt.Sscan(rest, &value)
				require.NoError(t, err)
				sum += value
			}
		}
	}
	return sum
}

// checkDeadLetters is I6: a dead letter says what happened, and a retry runs the same payload under the same id.
func (in *installation) checkDeadLetters(t testing.TB, jobs []*job) int {
	t.Helper()
	var letters []*job
	for _, j := range jobs {
		if j.task.Status == api.TaskDeadLetter {
			letters = append(letters, j)
		}
	}
	for n, j := range letters {
		// What Temporal alone tells, while no worker answers, lacks the attempts.
		for end := time.Now().Add(time.Minute); len(j.task.Attempts) == 0 && time.Now().Before(end); {
			_, _ = in.call(n, http.MethodGet, tasksPath+"/"+j.id, nil, &j.task)
			pause(t.Context(), 200*time.Millisecond)
		}
		failed := 0
		for _, a := range j.task.Attempts {
			if a.Outcome == api.AttemptFailed && a.Reason != "" {
				failed++
			}
		}
		require.Equal(t, 2, failed, "the dead letter %s keeps its attempts and why each failed: %+v", j.id, j.task)
		require.NotEmpty(t, j.task.Why)
	}
	mended, err := openLedger(mendedPath(in.book.path), os.O_SYNC)
	require.NoError(t, err)
	require.NoError(t, mended.file.Close())
	for _, j := range letters {
		status, err := in.call(0, http.MethodPost, tasksPath+"/"+j.id+"/retry", map[string]any{"reason": "mended"}, nil)
		require.NoError(t, err)
		require.Less(t, status, 300, "retry of the dead letter %s", j.id)
		j.task = apiTask{}
	}
	limit := 30*time.Second + time.Duration(len(letters))*500*time.Millisecond
	require.Zero(t, in.settle(t.Context(), letters, limit), "retried dead letters end")
	for _, j := range letters {
		require.Equal(t, api.TaskCompleted, j.task.Status, "retried dead letter %s: %s", j.id, j.task.Why)
		require.Equal(t, j.work.Nonce, j.task.Result.Nonce, "the dead letter keeps its payload")
	}
	return len(letters)
}

func outcomes(counts map[api.TaskStatus]int) string {
	var parts []string
	for _, s := range []api.TaskStatus{api.TaskCompleted, api.TaskReview, api.TaskDeadLetter, api.TaskFailed,
		api.TaskCancelled,
		api.TaskExpired, api.TaskQueued, api.TaskRunning, api.TaskRetryWait, ""} {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	return strings.Join(parts, ", ")
}
