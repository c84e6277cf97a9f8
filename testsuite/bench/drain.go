package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/api"
	"mainstay.dev/mainstay/fleet"
)

// drainPlan is how many agents to drain, and how.
type drainPlan struct {
	agents, rest, maxParallel int
	work                      time.Duration
}

// drained is what came of a drain. Times are in milliseconds.
type drained struct {
	report
	Agents      int `json:"agents"`
	MaxParallel int `json:"max_parallel"`
	// Tasks ran on the agents when the drain began, or came meanwhile.
	Tasks int `json:"tasks"`
	// Total is from the request to when the last agent was out of service.
	Total   float64 `json:"total_ms"`
	TailP50 float64 `json:"tail_p50_ms"`
	TailMax float64 `json:"tail_max_ms"`
	Rerun   int     `json:"run_again"`          // attempts
	Lost    int     `json:"lost"`               // tasks that did not complete
	Late    int     `json:"begun_too_late"`     // attempts begun on an agent where nothing was to arrive any more
	Moved   int     `json:"moved"`              // attempts taken off an agent at its deadline
	Undue   int     `json:"not_in_maintenance"` // agents, at the end
	Met     bool    `json:"met"`                // nothing was repeated, lost or late

	// tails are from the end of an agent's last work, or from when nothing new arrived at it, to when it was out of
	// service.
	tails []time.Duration
}

func drainBenchmark() benchmark {
	p := drainPlan{}
	return benchmark{
		Command: &cobra.Command{
			Use:   "drain",
			Short: "Measure a drain of many agents with running work",
			Long: `Measure a drain of many agents, each a process with running work, while more work comes: how long it takes, and by what the
handlers wrote down, whether anything was run again, lost, or begun on an agent after its drain said that nothing would be.`,
			Example: "  mainstay bench drain --agents 50 --max-parallel 10",
		},
		numbers: []number{
			{"agents", &p.agents, 50, 1, 500, "agents to drain"},
			{"rest", &p.rest, 5, 1, 500, "agents that stay"},
			{"max-parallel", &p.maxParallel, 10, 1, 500, "how many are drained at the same time"},
		},
		lengths: []length{{"work", &p.work, 10 * time.Second, time.Second, "how long each task goes on"}},
		measure: func(ctx context.Context, r *run) error { return r.drain(ctx, p) },
	}
}

func (r *run) drain(ctx context.Context, p drainPlan) error {
	i, err := r.install(ctx, Setting{})
	if err != nil {
		return err
	}
	defer i.Stop()
	d := &drained{report: r.report, Agents: p.agents, MaxParallel: p.maxParallel}
	if err := d.measure(ctx, r, p, newCrew(i, "bench", p.agents+p.rest)); err != nil {
		return err
	}
	return r.facts(d, fmt.Sprintf("drain of %d agents, %d at a time", d.Agents, d.MaxParallel), [][2]string{
		{"in all", fmt.Sprintf("%.1f s", d.Total/1000)},
		{"from an agent's last work to maintenance, p50 / max", fmt.Sprintf("%.0f ms / %.0f ms", d.TailP50, d.TailMax)},
		{"tasks at work or submitted meanwhile", fmt.Sprint(d.Tasks)},
		{"run again / lost / moved", fmt.Sprintf("%d / %d / %d", d.Rerun, d.Lost, d.Moved)},
		{"begun on an agent after new work was stopped", fmt.Sprint(d.Late)},
	})
}

// measure gives every agent work, drains most of them while more work comes, and counts from outside, by what the
// handlers wrote, what was repeated.
func (d *drained) measure(ctx context.Context, r *run, p drainPlan, c *crew) error {
	if err := c.begin(ctx, fleet.ActiveActive); err != nil {
		return err
	}
	defer c.leave()
	tasks, err := c.submit(ctx, len(c.ids), p.work)
	if err != nil {
		return err
	}
	if err := c.awaitBegun(ctx, tasks); err != nil {
		return err
	}
	record, err := c.Clusters.Drain(ctx, c.cluster, &api.DrainAgentsRequest{Agents: c.ids[:p.agents],
		MaxParallel: p.maxParallel, DrainRequest: api.DrainRequest{Deadline: "5m", Reason: "benchmark"}})
	if err != nil {
		return err
	}
	fmt.Fprintf(r.story, "drain of %d agents, %d at a time, with %d tasks at work\n", p.agents, p.maxParallel, len(tasks))
	more, err := c.submit(ctx, p.agents, p.work/10)
	if err != nil {
		return err
	}
	tasks = append(tasks, more...)
	// How often it is looked at does not count: times come from its record and from the ledger.
	if err := eventually(ctx, "the drain's end", 2*time.Duration(p.agents)*p.work+settleLimit, 200*time.Millisecond,
		func(ctx context.Context) (bool, error) {
			record, err = c.Drains.Get(ctx, record.ID)
			return err == nil && record.CompletedAt != nil, err
		}); err != nil {
		return err
	}
	d.Tasks, d.Total = len(tasks), milliseconds(record.CompletedAt.Sub(record.RequestedAt))
	if d.Lost, d.Rerun, err = c.outcome(ctx, tasks, p.work+settleLimit); err != nil {
		return err
	}
	d.count(record, c.ledger.entries)
	tails := timesOf(d.tails)
	d.TailP50, d.TailMax, d.Met = tails.P50, tails.Max, d.met()
	return nil
}

// met reports whether nothing was repeated, lost or late.
func (d *drained) met() bool { return d.Rerun+d.Lost+d.Late+d.Moved+d.Undue == 0 }

// count takes from the record and the ledger how each agent's drain ended.
func (d *drained) count(record *fleet.DrainRecord, entries []ledgerEntry) {
	for i := range record.Agents {
		g := &record.Agents[i]
		d.Moved += g.Moved
		if g.Status != fleet.DrainCompleted || g.AcknowledgedAt == nil || g.CompletedAt == nil {
			d.Undue++
			continue
		}
		from := *g.AcknowledgedAt
		for _, e := range entries {
			if e.Agent != g.AgentID {
				continue
			}
			switch {
			case e.Event == ledgerBegin && e.time().After(*g.AcknowledgedAt):
				d.Late++
			case slices.Contains([]string{ledgerEnd, ledgerStop}, e.Event) && e.time().After(from):
				from = e.time()
			}
		}
		d.tails = append(d.tails, max(0, g.CompletedAt.Sub(from)))
	}
}
