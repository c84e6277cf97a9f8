package bench

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"mainstay.dev/mainstay/fleet"
)

const (
	// workSlots leave room for the work of lost agents.
	workSlots = 4
	// stopAfter is the stop timeout of the benchmarks' agents: work goes on for longer, so a stop always hands back.
	stopAfter = time.Second
	// settleLimit bounds what should take a moment.
	settleLimit = time.Minute
)

// crew is one cluster's agents, a process each, with work.
type crew struct {
	installation *Installation
	cluster      string
	hubs         string // URLs for the agents
	safety       fleet.RetrySafety
	slots        int    // of each agent
	capability   string // of each agent; empty: none
	ids          []string
	processes    map[string]*Process
	gone         map[int]bool // processes that were killed
	ledger       ledgerReader
	ledgerPath   string
}

func newCrew(i *Installation, cluster string, size int, safety fleet.RetrySafety) *crew {
	path := filepath.Join(i.dir, cluster+".ledger")
	c := &crew{
		installation: i,
		cluster:      cluster,
		hubs:         i.HubURL(),
		safety:       safety,
		slots:        workSlots,
		processes:    map[string]*Process{},
		gone:         map[int]bool{},
		ledger:       ledgerReader{path: path}, ledgerPath: path,
	}
	for n := range size {
		c.ids = append(c.ids, fmt.Sprintf("%s-%d", cluster, n+1))
	}
	return c
}

// create makes the crew's cluster.
func (c *crew) create(ctx context.Context, mode fleet.ReplicationMode) error {
	return c.createWith(ctx, mode, nil)
}

// createWith makes the crew's cluster with more settings than the mode.
func (c *crew) createWith(ctx context.Context, mode fleet.ReplicationMode, settings map[string]any) error {
	request := map[string]any{"name": c.cluster, "replication_mode": mode}
	maps.Copy(request, settings)
	return c.call(ctx, http.MethodPost, "/clusters", request, nil)
}

// start starts agents and waits until they have registered.
func (c *crew) start(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		args := []string{"bench", "agent", "--hub", c.hubs, "--cluster", c.cluster, "--id", id,
			"--slots", strconv.Itoa(c.slots), "--ledger", c.ledgerPath, "--stop-timeout", stopAfter.String()}
		if c.capability != "" {
			args = append(args, "--capability", c.capability)
		}
		p, err := c.installation.Start(id, args...)
		if err != nil {
			return err
		}
		c.processes[id] = p
	}
	return c.ledger.await(ctx, "all agents online", settleLimit, func(entries []ledgerEntry) bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return !c.online(entries, id) })
	})
}

func (c *crew) online(entries []ledgerEntry, id string) bool {
	pid := c.processes[id].PID()
	return slices.ContainsFunc(entries, func(e ledgerEntry) bool {
		return e.Event == ledgerOnline && e.PID == pid &&
			e.Agent == id
	})
}

// stop has all agents of the crew say goodbye, and returns when they have ended.
func (c *crew) stop() {
	for _, p := range c.processes {
		p.Signal(syscall.SIGTERM)
	}
	for _, p := range c.processes {
		<-p.Done()
	}
}

// awaitBegun waits until each of the tasks has begun.
func (c *crew) awaitBegun(ctx context.Context, tasks []queuedTask) error {
	ids := make([]string, len(tasks))
	for n := range tasks {
		ids[n] = tasks[n].ID
	}
	const slowest = 5 // tasks a second
	limit := settleLimit + time.Duration(len(tasks)/slowest)*time.Second
	return c.ledger.await(ctx, "the begin of all tasks", limit,
		func(entries []ledgerEntry) bool { return allBegun(entries, ids) })
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

// submit starts n tasks that go on for a while.
func (c *crew) submit(ctx context.Context, n int, run time.Duration) ([]string, error) {
	tasks := make([]string, n)
	return tasks, eachOf(n, 8, func(i int) error {
		var task struct {
			ID string `json:"id"`
		}
		err := c.call(ctx, http.MethodPost, "/tasks", map[string]any{
			"type": WorkType, "cluster": c.cluster, "retry_safety": c.safety,
			"payload": workPayload{fleet.Duration(run)},
		}, &task)
		tasks[i] = task.ID
		return err
	})
}

// cancel ends tasks. One that has ended already is none of our business.
func (c *crew) cancel(ctx context.Context, tasks ...string) error {
	return eachOf(len(tasks), 8, func(i int) error {
		return c.call(ctx, http.MethodPost, "/tasks/"+tasks[i]+"/cancel",
			nil, nil)
	})
}

// running are the tasks in progress by agent.
func (c *crew) running() map[string]map[string]ledgerEntry { return running(c.ledger.entries, c.gone) }

// fill submits work until each of the agents has some.
func (c *crew) fill(ctx context.Context, ids ...string) error {
	for range 10 {
		idle := 0
		for _, id := range ids {
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
		if err := c.ledger.await(ctx, "new work", settleLimit,
			func(entries []ledgerEntry) bool { return allBegun(entries, tasks) }); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: some agents get no work although they are free", c.cluster)
}

func allBegun(entries []ledgerEntry, tasks []string) bool {
	begun := make(map[string]bool, len(entries))
	for _, e := range entries {
		if e.Event == ledgerBegin {
			begun[e.Task] = true
		}
	}
	return !slices.ContainsFunc(tasks, func(task string) bool { return !begun[task] })
}

// call sends a request to the REST API below /api/v1/agents, for what takes a moment.
func (c *crew) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	return c.installation.call(ctx, method, path, in, out)
}
