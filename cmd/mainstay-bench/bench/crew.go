package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/client"
)

const (
	// workSlots leave room for the work of lost agents.
	workSlots = 4
	// stopAfter is the stop timeout of the benchmarks' agents: work goes on for longer, so a stop always hands back.
	stopAfter = time.Second
)

// oneAgent starts one agent in a cluster of its own.
func (i *Installation) oneAgent(ctx context.Context, slots int) (*crew, error) {
	c := newCrew(i, "bench", 1)
	c.slots = slots
	return c, c.begin(ctx, api.ActiveActive)
}

// crew is one cluster's agents, a process each, with work.
type crew struct {
	*Installation
	cluster   string
	safety    api.RetrySafety
	slots     int      // of each agent
	types     []string // that its agents handle; empty: all of the benchmarks
	led       bool     // only a leader works
	stopAfter time.Duration
	relay     *relay // between the agents and the hub; nil: nothing is
	store     *relay // between Temporal and the hub of its own; nil: nothing is
	cables    map[string]*cable
	ids       []string
	submitted int // tasks
	processes map[string]*Process
	gone      map[int]bool // processes that were killed
	ledger    ledgerReader
}

func newCrew(i *Installation, cluster string, size int) *crew {
	c := &crew{
		Installation: i,
		cluster:      cluster,
		safety:       api.Idempotent,
		slots:        workSlots,
		stopAfter:    stopAfter,
		processes:    map[string]*Process{},
		gone:         map[int]bool{},
		ledger:       ledgerReader{path: filepath.Join(i.dir, cluster+".ledger")},
	}
	for n := range size {
		c.ids = append(c.ids, fmt.Sprintf("%s-%d", cluster, n+1))
	}
	return c
}

// create makes the crew's cluster.
func (c *crew) create(ctx context.Context, mode api.ReplicationMode) error {
	_, err := c.Clusters.Create(ctx, client.Settings{"name": c.cluster, "replication_mode": mode})
	return err
}

// begin makes the crew's cluster and starts its agents.
func (c *crew) begin(ctx context.Context, mode api.ReplicationMode) error {
	if err := c.create(ctx, mode); err != nil {
		return err
	}
	return c.startAgents(ctx, c.ids...)
}

// startAgents starts agents and waits until they have registered.
func (c *crew) startAgents(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		url, under := c.agentsURL(), []string(nil)
		switch {
		case c.relay != nil:
			url = c.relay.url()
		case c.store != nil:
			url += "," + c.url
		}
		if cable := c.cables[id]; cable != nil {
			url, under = strings.Replace(url, c.hubHost, cable.address, 1), cable.under()
		}
		args := append(slices.Clone(under), c.self, "agent", "--hub", url, "--cluster", c.cluster,
			"--id", id, "--slots", strconv.Itoa(c.slots), "--ledger", c.ledger.path,
			"--stop-timeout", c.stopAfter.String())
		for _, taskType := range c.types {
			args = append(args, "--type", taskType)
		}
		p, err := c.startLine(id, args)
		if err != nil {
			return err
		}
		c.processes[id] = p
	}
	return c.ledger.await(ctx, "all agents online", settleLimit, func(entries []ledgerEntry) bool {
		online := map[int]bool{}
		for _, e := range entries {
			if e.Event == ledgerOnline {
				online[e.PID] = true
			}
		}
		return !slices.ContainsFunc(ids, func(id string) bool { return !online[c.processes[id].PID()] })
	})
}

// leave makes all agents of the crew say goodbye, and returns when they have ended.
func (c *crew) leave() {
	for _, p := range c.processes {
		p.Signal(syscall.SIGTERM)
	}
	for _, p := range c.processes {
		<-p.done
	}
}

// pids are the processes of the agents.
func (c *crew) pids() (pids []int) {
	for _, p := range c.processes {
		pids = append(pids, p.PID())
	}
	return pids
}

// awaitBegun waits until each of the tasks has begun.
func (c *crew) awaitBegun(ctx context.Context, tasks []string) error {
	const slowest = 5 // tasks a second
	limit := settleLimit + time.Duration(len(tasks)/slowest)*time.Second
	return c.ledger.await(ctx, "the begin of all tasks", limit,
		func(entries []ledgerEntry) bool { return allBegun(entries, tasks) })
}

// awaitIdle waits until nothing is in progress.
func (c *crew) awaitIdle(ctx context.Context, limit time.Duration) error {
	return c.ledger.await(ctx, "the end of all work", limit, func(entries []ledgerEntry) bool {
		for _, tasks := range running(entries, c.gone) {
			if len(tasks) > 0 {
				return false
			}
		}
		return true
	})
}

// work is the payload of a task that goes on for a while.
func work(d time.Duration) json.RawMessage { return json.RawMessage(`{"run":"` + d.String() + `"}`) }

// submit starts n tasks that go on for a while.
func (c *crew) submit(ctx context.Context, n int, run time.Duration) ([]string, error) {
	first := c.submitted
	c.submitted += n
	tasks := make([]string, n)
	for k := range tasks {
		tasks[k] = c.taskID(first + k)
	}
	spec := api.TaskSpec{Type: workType, RetrySafety: c.safety, Payload: work(run)}
	return tasks, c.submitBatches(ctx, first, n, spec)
}

func (c *crew) taskID(n int) string { return fmt.Sprintf("%s-%d", c.cluster, n) }

// outcome waits until the work on tasks is over, and counts those that did not complete and the attempts that were run
// again.
func (c *crew) outcome(ctx context.Context, tasks []string, limit time.Duration) (lost, rerun int, err error) {
	if err := c.awaitIdle(ctx, limit); err != nil {
		return 0, 0, err
	}
	var completed atomic.Int64
	if err := eachOf(ctx, len(tasks), 8, func(ctx context.Context, i int) error {
		task, err := c.Tasks.Wait(ctx, tasks[i], 30*time.Second)
		if err == nil && task.Status == api.TaskCompleted {
			completed.Add(1)
		}
		return err
	}); err != nil {
		return 0, 0, err
	}
	err = c.ledger.more()
	return len(tasks) - int(completed.Load()), reruns(c.ledger.entries, tasks), err
}

// revive starts agents again that were killed, or are about to end.
func (c *crew) revive(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		<-c.processes[id].done
		c.gone[c.processes[id].PID()] = true
	}
	return c.startAgents(ctx, ids...)
}

// inProgress are the tasks that agents work on.
func (c *crew) inProgress() (tasks []string) {
	for _, of := range c.running() {
		tasks = slices.AppendSeq(tasks, maps.Keys(of))
	}
	return tasks
}

// running are the tasks in progress by agent.
func (c *crew) running() map[string]map[string]ledgerEntry { return running(c.ledger.entries, c.gone) }

// fill submits work until each of the agents has some.
func (c *crew) fill(ctx context.Context) error {
	for range 10 {
		idle := 0
		for _, id := range c.ids {
			if len(c.running()[id]) == 0 {
				idle++
			}
		}
		if idle == 0 {
			return nil
		}
		tasks, err := c.submit(ctx, idle, time.Hour)
		if err != nil {
			return err
		}
		if err := c.awaitBegun(ctx, tasks); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: some agents get no work although they are free", c.cluster)
}
