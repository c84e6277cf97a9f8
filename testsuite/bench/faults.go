package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// moveLimit is how long a task may take to go on elsewhere until the run is given up.
const moveLimit = 2 * time.Minute

// hit does something to agents with work and returns, for each task they had, the time from the fault to the first
// instruction of its next attempt on another agent. afterwards puts the agents back to work.
func (c *crew) hit(ctx context.Context, fault func(*Process), ids ...string) (moved []move, err error) {
	if err := c.ledger.more(); err != nil {
		return nil, err
	}
	before := len(c.ledger.entries)
	by := c.running()
	had := map[string]move{}
	for _, id := range ids {
		at := time.Now()
		fault(c.processes[id])
		for task := range by[id] {
			had[task] = move{task: task, from: id, fault: at}
		}
	}
	if len(had) == 0 {
		return nil, errors.New("the agents had no work: nothing to measure")
	}
	err = c.ledger.await(ctx, "the work of the hit agents on others", moveLimit, func(entries []ledgerEntry) bool {
		for _, e := range entries[before:] {
			m, ours := had[e.Task]
			switch {
			case !ours:
			case e.Event == ledgerBegin && e.Agent != m.from && m.begin.IsZero():
				m.begin = e.time()
			case (e.Event == ledgerStop || e.Event == ledgerEnd) && e.Agent == m.from && m.stop.IsZero():
				m.stop = e.time()
			}
			if ours {
				had[e.Task] = m
			}
		}
		for _, m := range had {
			if m.begin.IsZero() {
				return false
			}
		}
		return true
	})
	for _, m := range had {
		moved = append(moved, m)
	}
	return moved, err
}

// move is one task that went from an agent to another.
type move struct {
	task, from  string
	fault       time.Time
	stop, begin time.Time // of the old attempt, if it told, and of the new one
}

// recover starts killed agents again, takes moved tasks away, and fills up.
func (c *crew) recover(ctx context.Context, moved []move, ids ...string) error {
	tasks := make([]string, len(moved))
	for i, m := range moved {
		tasks[i] = m.task
	}
	if err := c.cancel(ctx, tasks...); err != nil {
		return err
	}
	for _, id := range ids {
		<-c.processes[id].Done()
		c.gone[c.processes[id].PID()] = true
	}
	if err := c.start(ctx, ids...); err != nil {
		return err
	}
	return c.fill(ctx, c.ids...)
}

// kills kills agents one after the other with SIGKILL.
func (c *crew) kills(ctx context.Context, n int, row *Row, progress io.Writer) error {
	for k := range n {
		id := c.ids[k%len(c.ids)]
		moved, err := c.hit(ctx, (*Process).Kill, id)
		if err != nil {
			return err
		}
		row.took(moved)
		if err := c.recover(ctx, moved, id); err != nil {
			return err
		}
		if (k+1)%10 == 0 {
			fmt.Fprintf(progress, "%s: %d of %d\n", row.Fault, k+1, n)
		}
	}
	return nil
}

// terminations stops agents one after the other with SIGTERM. What counts is the gap in which nobody works on a task.
func (c *crew) terminations(ctx context.Context, n int, row *Row, progress io.Writer) error {
	for k := range n {
		id := c.ids[k%len(c.ids)]
		moved, err := c.hit(ctx, func(p *Process) { p.Signal(syscall.SIGTERM) }, id)
		if err != nil {
			return err
		}
		row.Faults++
		for _, m := range moved {
			if m.stop.IsZero() || m.begin.Before(m.stop) {
				row.Twice++
			}
			row.Times = append(row.Times, m.begin.Sub(m.stop))
		}
		if err := c.recover(ctx, moved, id); err != nil {
			return err
		}
		if (k+1)%10 == 0 {
			fmt.Fprintf(progress, "%s: %d of %d\n", row.Fault, k+1, n)
		}
	}
	return nil
}

// freezes stops several agents at a time with SIGSTOP, fewer than would put the mass-loss brake on, and lets them go on
// when their work is elsewhere.
func (c *crew) freezes(ctx context.Context, n int, row *Row, progress io.Writer) error {
	together := max(1, len(c.ids)/5)
	for next := 0; next < n; {
		var ids []string
		for range min(together, n-next) {
			ids = append(ids, c.ids[next%len(c.ids)])
			next++
		}
		moved, err := c.hit(ctx, func(p *Process) { p.Signal(syscall.SIGSTOP) }, ids...)
		if err != nil {
			return err
		}
		row.took(moved)
		row.Faults += len(ids) - 1
		if err := c.thaw(ctx, moved, ids...); err != nil {
			return err
		}
		fmt.Fprintf(progress, "%s: %d of %d\n", row.Fault, next, n)
	}
	return nil
}

// thaw lets stopped agents go on. They find out that they were given up, stop their old work and come back.
func (c *crew) thaw(ctx context.Context, moved []move, ids ...string) error {
	for _, id := range ids {
		c.processes[id].Signal(syscall.SIGCONT)
	}
	if err := c.ledger.await(ctx, "the old attempts stopped", settleLimit, func(entries []ledgerEntry) bool {
		by := running(entries, c.gone)
		for _, m := range moved {
			if _, still := by[m.from][m.task]; still {
				return false
			}
		}
		return true
	}); err != nil {
		return err
	}
	tasks := make([]string, len(moved))
	for i, m := range moved {
		tasks[i] = m.task
	}
	if err := c.cancel(ctx, tasks...); err != nil {
		return err
	}
	return c.fill(ctx, c.ids...)
}

// leaders kills whoever leads. Only the leader works, so one task shows who it is.
func (c *crew) leaders(ctx context.Context, n int, row *Row, progress io.Writer) error {
	for k := range n {
		leader := ""
		for id, tasks := range c.running() {
			if len(tasks) > 0 {
				if leader != "" {
					row.Twice++
				}
				leader = id
			}
		}
		if leader == "" {
			return errors.New("nobody leads")
		}
		moved, err := c.hit(ctx, (*Process).Kill, leader)
		if err != nil {
			return err
		}
		row.took(moved)
		if err := c.recoverLeader(ctx, moved, leader); err != nil {
			return err
		}
		if (k+1)%5 == 0 {
			fmt.Fprintf(progress, "%s: %d of %d\n", row.Fault, k+1, n)
		}
	}
	return nil
}

// recoverLeader starts the old leader again, as a standby, and gives the new one fresh work.
func (c *crew) recoverLeader(ctx context.Context, moved []move, old string) error {
	tasks := make([]string, len(moved))
	for i, m := range moved {
		tasks[i] = m.task
	}
	if err := c.cancel(ctx, tasks...); err != nil {
		return err
	}
	<-c.processes[old].Done()
	c.gone[c.processes[old].PID()] = true
	if err := c.start(ctx, old); err != nil {
		return err
	}
	return c.oneTask(ctx)
}

// oneTask submits one task, waits until it runs, and until all others have stopped.
func (c *crew) oneTask(ctx context.Context) error {
	tasks, err := c.submit(ctx, 1, time.Hour)
	if err != nil {
		return err
	}
	return c.ledger.await(ctx, "one task in progress", settleLimit, func(entries []ledgerEntry) bool {
		by := running(entries, c.gone)
		count := 0
		for _, of := range by {
			count += len(of)
		}
		return count == 1 && allBegun(entries, tasks)
	})
}

// Agents of the failover benchmark.
const (
	DefaultAgents = 20
	leaderCrew    = 3
)

// startCrew makes a cluster with agents.
func startCrew(ctx context.Context, i *Installation, cluster string, size int, mode fleet.ReplicationMode,
	safety fleet.RetrySafety) (*crew, error) {
	c := newCrew(i, cluster, size, safety)
	if err := c.create(ctx, mode); err != nil {
		return nil, err
	}
	return c, c.start(ctx, c.ids...)
}
