package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"
)

// moveLimit is how long a task may take to go on elsewhere until the run is given up.
const moveLimit = 2 * time.Minute

// move is one task that went from an agent to another.
type move struct {
	task, from  string
	fault       time.Time
	stop, begin time.Time // of the old attempt, if it told, and of the new one
}

// hitAll does a fault n times, counts what came of it, and puts the agents back to work each time.
func (c *crew) hitAll(ctx context.Context, row *faultRow, n int, progress io.Writer) error {
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
			fmt.Fprintf(progress, "%s: %d of %d\n", row.Fault, done, n)
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

// count adds what came of a fault of some agents. After SIGTERM, which has an agent hand its work back, what counts is
// the gap in which nobody works on a task.
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

// stopLeaders stops the leader n times while it has work, and takes the time until another agent leads. The work is to
// end where it is.
func (c *crew) stopLeaders(ctx context.Context, row *faultRow, n int) error {
	for ; row.Faults < n; row.Faults++ {
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
		<-c.processes[leader].done
		c.gone[c.processes[leader].PID()] = true
		if err := c.startAgents(ctx, leader); err != nil {
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

// restore has agents go on that were stopped, or starts the others again, takes the moved tasks away, and fills up.
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
			<-c.processes[id].done
			c.gone[c.processes[id].PID()] = true
		}
		if err := c.startAgents(ctx, ids...); err != nil {
			return err
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
