package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"mainstay.dev/sdk/api"
	"mainstay.dev/sdk/backoff"
	"mainstay.dev/sdk/client"
)

// moveLimit is how long a task may take to go on elsewhere until the run is given up.
const moveLimit = 2 * time.Minute

// move is one task that went from an agent to another.
type move struct {
	task, from  string
	fault       time.Time
	stop, begin time.Time // of the old attempt, if the ledger has it, and of the new one
}

// hits does a fault again and again, counts the results, and puts the agents back to work each time.
func hits(ctx context.Context, p *failoverPlan, c *crew, row *faultRow) error {
	n := p.times(row)
	for done := 0; done < n; {
		ids, err := c.victims(row, done, n)
		if err != nil {
			return err
		}
		moved, err := c.hit(ctx, row, ids...)
		if err != nil {
			return err
		}
		row.count(moved, len(ids))
		if err := c.restore(ctx, row, moved, ids); err != nil {
			return err
		}
		if done += len(ids); done%10 == 0 || done == n || len(ids) > 1 {
			fmt.Fprintf(c.story, "%s: %d of %d\n", row.Fault, done, n)
		}
	}
	return nil
}

// victims are the agents to hit next: one after the other; of those that freeze several at a time, fewer than would put
// the mass-loss brake on; or the one that leads. Only the leader works, so one task shows who it is.
func (c *crew) victims(row *faultRow, done, n int) ([]string, error) {
	if c.led {
		var leaders []string
		for id, tasks := range c.running() {
			if len(tasks) > 0 {
				leaders = append(leaders, id)
			}
		}
		if len(leaders) == 0 {
			return nil, errors.New("nobody leads")
		}
		row.Twice += len(leaders) - 1
		return leaders[:1], nil
	}
	together := 1
	if row.signal == syscall.SIGSTOP {
		together = min(max(1, len(c.ids)/5), n-done)
	}
	ids := make([]string, together)
	for k := range ids {
		ids[k] = c.ids[(done+k)%len(c.ids)]
	}
	return ids, nil
}

// count adds the results of a fault of some agents. After SIGTERM, which makes an agent hand its work back, it counts
// the time in which nobody works on a task.
func (r *faultRow) count(moved []move, agents int) {
	r.Faults += agents
	for _, m := range moved {
		from := m.fault
		if r.signal == syscall.SIGTERM {
			from = m.stop
			if m.stop.IsZero() || m.begin.Before(m.stop) {
				r.Twice++
			}
		}
		r.times = append(r.times, m.begin.Sub(from))
	}
}

// hit does something to agents with work and returns, for each task they had, the time from the fault to the first
// instruction of its next attempt on another agent.
func (c *crew) hit(ctx context.Context, row *faultRow, ids ...string) ([]move, error) {
	if err := c.ledger.more(); err != nil {
		return nil, err
	}
	before := len(c.ledger.entries)
	by := c.running()
	had := map[string]*move{}
	for _, id := range ids {
		at := time.Now()
		if err := c.strike(row, id); err != nil {
			return nil, err
		}
		for task := range by[id] {
			had[task] = &move{task: task, from: id, fault: at}
		}
	}
	if len(had) == 0 {
		return nil, errors.New("the agents had no work: nothing to measure")
	}
	if row.also != nil {
		if err := row.also(ctx, c, ids[0]); err != nil {
			return nil, err
		}
	}
	err := c.ledger.await(ctx, "the work of the hit agents on others", moveLimit, func(entries []ledgerEntry) bool {
		for _, e := range entries[before:] {
			m := had[e.Task]
			switch {
			case m == nil:
			case e.Event == ledgerBegin && e.Agent != m.from && m.begin.IsZero():
				m.begin = e.time()
			case (e.Event == ledgerStop || e.Event == ledgerEnd) && e.Agent == m.from && m.stop.IsZero():
				m.stop = e.time()
			}
		}
		for _, m := range had {
			if m.begin.IsZero() {
				return false
			}
		}
		return true
	})
	moved := make([]move, 0, len(had))
	for _, m := range had {
		moved = append(moved, *m)
	}
	return moved, err
}

// leaderWork is how long the work of a leader takes that is stopped.
const leaderWork = 20 * time.Second

// stopLeaders stops the leader again and again while it has work, and takes the time until another agent leads. The
// work is to end where it is.
func stopLeaders(ctx context.Context, p *failoverPlan, c *crew, row *faultRow) error {
	for ; row.Faults < p.times(row); row.Faults++ {
		tasks, err := c.submit(ctx, 1, leaderWork)
		if err != nil {
			return err
		}
		if err := c.awaitBegun(ctx, tasks); err != nil {
			return err
		}
		var leader string
		for id, of := range c.running() {
			if _, works := of[tasks[0]]; works {
				leader = id
			}
		}
		before, stopped := len(c.ledger.entries), time.Now()
		c.processes[leader].Signal(row.signal)
		err = c.ledger.await(ctx, "another leader", moveLimit, func(entries []ledgerEntry) bool {
			i := slices.IndexFunc(entries[before:], func(e ledgerEntry) bool {
				return e.Event == ledgerLeads && e.Agent != leader
			})
			if i >= 0 {
				row.times = append(row.times, entries[before+i].time().Sub(stopped))
			}
			return i >= 0
		})
		if err != nil {
			return err
		}
		lost, rerun, err := c.outcome(ctx, tasks, moveLimit)
		if err != nil {
			return err
		}
		row.Tasks, row.Lost, row.Rerun = row.Tasks+1, row.Lost+lost, row.Rerun+rerun
		if err := c.revive(ctx, leader); err != nil {
			return err
		}
	}
	return nil
}

// strike does the fault to one agent.
func (c *crew) strike(row *faultRow, id string) error {
	if cable := c.cables[id]; cable != nil {
		return cable.pull()
	}
	c.processes[id].Signal(row.signal)
	return nil
}

// restore lets stopped agents go on, or starts the others again, takes the moved tasks away, and fills up.
func (c *crew) restore(ctx context.Context, row *faultRow, moved []move, ids []string) error {
	if row.signal == syscall.SIGSTOP {
		if err := c.thaw(ctx, moved, ids); err != nil {
			return err
		}
	}
	if err := eachOf(ctx, len(moved), 8, func(ctx context.Context, i int) error {
		_, err := c.Tasks.Cancel(ctx, moved[i].task, "")
		return err
	}); err != nil {
		return err
	}
	if row.signal != syscall.SIGSTOP {
		for _, id := range ids {
			if cable := c.cables[id]; cable != nil {
				c.processes[id].Kill()
				if err := cable.plug(); err != nil {
					return err
				}
			}
		}
		if err := c.revive(ctx, ids...); err != nil {
			return err
		}
		if len(c.cables) > 0 { // an agent that came back on its cable gets no work for up to two seconds
			backoff.Pause(ctx, 3*time.Second)
		}
	}
	if c.led {
		return c.oneTask(ctx)
	}
	return c.fill(ctx)
}

// thaw lets stopped agents go on. They find out that they were given up, stop their old work and come back.
func (c *crew) thaw(ctx context.Context, moved []move, ids []string) error {
	for _, id := range ids {
		c.processes[id].Signal(syscall.SIGCONT)
	}
	return c.ledger.await(ctx, "the old attempts' stop", settleLimit, func(entries []ledgerEntry) bool {
		by := running(entries, c.gone)
		return !slices.ContainsFunc(moved, func(m move) bool { _, still := by[m.from][m.task]; return still })
	})
}

// oneTask submits one task, waits until it runs, and until all others have stopped.
func (c *crew) oneTask(ctx context.Context) error {
	tasks, err := c.submit(ctx, 1, time.Hour)
	if err != nil {
		return err
	}
	return c.ledger.await(ctx, "one task in progress", settleLimit, func(entries []ledgerEntry) bool {
		count := 0
		for _, of := range running(entries, c.gone) {
			count += len(of)
		}
		return count == 1 && allBegun(entries, tasks)
	})
}

// flap cuts all connections each second, and counts the tasks that were begun again although their agents live.
func flap(ctx context.Context, p *failoverPlan, c *crew, row *faultRow) error {
	tasks := c.inProgress()
	for end := time.Now().Add(p.flap); time.Now().Before(end); {
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		row.Faults += c.relay.cut()
	}
	if err := pause(ctx, 5*time.Second); err != nil { // what was given up would be at work again by then
		return err
	}
	return row.countReruns(c, tasks)
}

// countReruns counts which of the tasks were begun again.
func (r *faultRow) countReruns(c *crew, tasks []string) error {
	err := c.ledger.more()
	r.Tasks, r.Rerun = len(tasks), reruns(c.ledger.entries, tasks)
	return err
}

// watchHealthy counts the agents that are given up or suspected, and the tasks that are begun again, while the machine
// has much more to do than it can.
func watchHealthy(ctx context.Context, plan *failoverPlan, c *crew, row *faultRow) error {
	tasks := c.inProgress()
	ctx, stop := context.WithCancel(ctx)
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop()
	for range 4 * runtime.NumCPU() {
		// It ends even if this process is killed.
		limit := strconv.Itoa(int(plan.healthy.Seconds()) + 60)
		p := exec.CommandContext(ctx, "timeout", limit, "sh", "-c", "while :; do :; done")
		p.Cancel = func() error { return p.Process.Signal(syscall.SIGTERM) }
		if err := p.Start(); err != nil {
			return fmt.Errorf("start a busy process: %w", err)
		}
		busy.Go(func() { _ = p.Wait() })
	}
	watched, done := context.WithTimeout(ctx, plan.healthy)
	defer done()
	types := []string{string(api.EventAgentSuspect), string(api.EventAgentLost)}
	for event, err := range c.Events(watched, client.EventQuery{Types: types}) {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
		case err != nil:
			return err
		case event.Type == api.EventAgentLost:
			row.GivenUp++
		default:
			row.Suspected++
		}
	}
	return row.countReruns(c, tasks)
}

// outageWork is how long tasks go on that live through an outage: longer than everything that could have them run
// again, an attempt's backstop of 60 s and an outage of 20 s among it.
const outageWork = 100 * time.Second

// outage gives every agent a task, lets parts of the control plane die and come back, and counts attempts that were run
// again and tasks that did not complete.
func outage(strike func(context.Context, *failoverPlan, *crew, *faultRow) error) func(
	context.Context, *failoverPlan, *crew, *faultRow) error {
	return func(ctx context.Context, p *failoverPlan, c *crew, row *faultRow) error {
		tasks, err := c.submit(ctx, len(c.ids), outageWork)
		if err != nil {
			return err
		}
		if err := c.awaitBegun(ctx, tasks); err != nil {
			return err
		}
		fmt.Fprintf(c.story, "%s: %d agents at work\n", row.Fault, len(c.ids))
		begun := time.Now()
		if err := strike(ctx, p, c, row); err != nil {
			return err
		}
		fmt.Fprintf(c.story, "%s: back after %s\n", row.Fault, time.Since(begun).Round(100*time.Millisecond))
		row.Faults, row.Tasks = 1, len(tasks)
		row.Lost, row.Rerun, err = c.outcome(ctx, tasks, outageWork+2*moveLimit)
		return err
	}
}

func killHub(ctx context.Context, _ *failoverPlan, c *crew, _ *faultRow) error {
	return restartHub(ctx, c, "")
}

func killTemporal(ctx context.Context, p *failoverPlan, c *crew, row *faultRow) error {
	row.Fault += fmt.Sprintf(", %s away", p.away)
	return c.comeBack(ctx, p.away)
}

func killAll(ctx context.Context, _ *failoverPlan, c *crew, _ *faultRow) error {
	return c.comeBack(ctx, 0)
}

// cutOffHub cuts the agents' hub off from Temporal until a minute after they have moved to the other hub, and takes the
// time of each move.
func cutOffHub(ctx context.Context, _ *failoverPlan, c *crew, row *faultRow) error {
	if err := c.ledger.more(); err != nil {
		return err
	}
	before := len(c.ledger.entries)
	c.store.held.Lock()
	defer c.store.held.Unlock()
	cut := time.Now()
	err := c.ledger.await(ctx, "all agents at the other hub", moveLimit, func(entries []ledgerEntry) bool {
		moves := map[int]time.Duration{}
		for _, e := range entries[before:] {
			if _, again := moves[e.PID]; e.Event == ledgerOnline && !again {
				moves[e.PID] = e.time().Sub(cut)
			}
		}
		row.times = slices.Collect(maps.Values(moves))
		return len(moves) == len(c.ids)
	})
	if err != nil {
		return err
	}
	return pause(ctx, time.Minute)
}
