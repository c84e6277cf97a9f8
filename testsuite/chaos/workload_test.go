//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"mainstay.dev/sdk/agent"
	"mainstay.dev/sdk/api"
)

// The clusters of a run, by their replication mode. Agents of the second note whether they lead.
const (
	clusterAll    = "aa"
	clusterLeader = "ap"
	clusterShards = "sh"
)

var clusterModes = map[string]string{clusterAll: "active_active", clusterLeader: "active_passive",
	clusterShards: "sharded"}

// job is one task of the workload and what became of it.
type job struct {
	key     string
	cluster string
	tenant  string // empty: none
	pin     string // the agent that alone may do it; empty: any
	safety  api.RetrySafety
	work    work
	at      time.Duration // when to submit it

	id     string // set once acknowledged
	unsure int    // submissions without an answer: each may have happened
	task   apiTask
}

// apiTask is a task as the API answers it.
type apiTask struct {
	ID       string         `json:"id"`
	Status   api.TaskStatus `json:"status"`
	Why      string         `json:"why"`
	Attempts []api.Attempt  `json:"attempts"`
	Result   *done          `json:"result"`
}

func (t *apiTask) settled() bool {
	return t.Status.Final() || t.Status == api.TaskReview || t.Status == api.TaskDeadLetter
}

const tasksPath = "/api/v1/agents/tasks"

// planJobs makes the work of a run: all safeties, durations up to 3 s, some of it failing, some of it commands with
// child processes.
func planJobs(random *rand.Rand, n int, duration time.Duration) []*job {
	jobs := make([]*job, n)
	safeties := []api.RetrySafety{api.Idempotent, api.Idempotent, api.Fenced, api.AtMostOnce}
	clusters := []string{clusterAll, clusterAll, clusterLeader, clusterShards}
	for i := range jobs {
		j := &job{key: fmt.Sprintf("job-%d", i), cluster: clusters[random.IntN(len(clusters))],
			safety: safeties[random.IntN(len(safeties))],
			work:   work{MS: random.IntN(3000), Nonce: fmt.Sprintf("n%d-%d", i, random.Uint32())}}
		j.at = time.Duration(float64(duration) * float64(i) / float64(n))
		switch p := random.IntN(20); {
		case p == 0:
			j.work.Fail, j.work.MS, j.safety = failAlways, j.work.MS/4, api.Idempotent
		case p < 3:
			j.work.Fail = failFirst
		}
		j.work.Tree = i%5 == 0
		jobs[i] = j
	}
	return jobs
}

// submitAll submits every job at its time, and again with the same key until it is acknowledged.
func (in *installation) submitAll(ctx context.Context, jobs []*job) {
	begun := time.Now()
	var wg sync.WaitGroup
	for i, j := range jobs {
		if !pause(ctx, time.Until(begun.Add(j.at))) {
			break
		}
		wg.Go(func() { in.submit(ctx, j, i) })
	}
	wg.Wait()
}

func (in *installation) submit(ctx context.Context, j *job, first int) {
	for try := first; ctx.Err() == nil; try++ {
		var t apiTask
		status, err := in.call(try, http.MethodPost, tasksPath, j.request(), &t)
		switch {
		case err == nil && status < 300 && t.ID != "":
			j.id = t.ID
			return
		case err != nil:
			j.unsure++
		}
		pause(ctx, 200*time.Millisecond)
	}
}

func (j *job) request() map[string]any {
	request := map[string]any{
		"type": "work", "cluster": j.cluster, "payload": j.work, "retry_safety": j.safety, "idempotency_key": j.key,
		"shard_key": j.key,
		"timeout":   "60s",
		"retry": map[string]any{"max_attempts": 2, "max_transfers": 20, "initial_interval": "200ms",
			"max_interval": "1s"},
	}
	if j.work.Tree {
		request["type"], request["payload"] = agent.ExecType, j.work.asExec()
	}
	if j.pin != "" {
		request["agent"] = j.pin
	}
	if j.tenant != "" {
		request["tenant"] = j.tenant
	}
	return request
}

// settle waits until every acknowledged job has ended, waits for a person, or the limit is over; it returns how many
// are still open.
func (in *installation) settle(ctx context.Context, jobs []*job, limit time.Duration) int {
	deadline := time.Now().Add(limit)
	for round := 0; ; round++ {
		var wg sync.WaitGroup
		slots := make(chan struct{}, 4)
		open := 0
		for _, j := range jobs {
			if j.id == "" || j.task.settled() {
				continue
			}
			open++
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				var t apiTask
				if status, err := in.call(round, http.MethodGet, tasksPath+"/"+j.id, nil, &t); err == nil &&
					status == http.StatusOK {
					j.task = t
				}
			})
		}
		wg.Wait()
		if open == 0 || time.Now().After(deadline) || !pause(ctx, 250*time.Millisecond) {
			return open
		}
	}
}

// pause waits, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// watcher looks at the clusters all the time: epochs must never fall.
type watcher struct {
	mu      sync.Mutex
	looks   int
	highest map[string]int64
	fell    []string
}

func (in *installation) watch(ctx context.Context, t testing.TB, clusters []string) *watcher {
	w := &watcher{highest: map[string]int64{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; pause(ctx, 200*time.Millisecond); i++ {
			for _, name := range clusters {
				var c clusterView
				if status, err := in.call(i, http.MethodGet, "/api/v1/agents/clusters/"+name, nil, &c); err == nil &&
					status == http.StatusOK {
					w.look(name, &c)
				}
			}
		}
	})
	t.Cleanup(wg.Wait)
	return w
}

// clusterView is what the watcher reads of a cluster.
type clusterView struct {
	Leader      string `json:"leader"`
	LeaderEpoch int64  `json:"leader_epoch"`
	ShardOwners []struct {
		Shard int    `json:"shard"`
		Owner string `json:"owner"`
		Epoch int64  `json:"epoch"`
	} `json:"shard_owners"`
	HealthyAgentCount int `json:"healthy_agent_count"`
}

func (w *watcher) look(name string, c *clusterView) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	note := func(what string, epoch int64) {
		if epoch != 0 && epoch < w.highest[what] {
			w.fell = append(w.fell, fmt.Sprintf("%s fell from %d to %d", what, w.highest[what], epoch))
		}
		w.highest[what] = max(w.highest[what], epoch)
	}
	note("the leader's epoch of "+name, c.LeaderEpoch)
	for _, s := range c.ShardOwners {
		note(fmt.Sprintf("the epoch of shard %d of %s", s.Shard, name), s.Epoch)
	}
}
