package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"mainstay.dev/mainstay/fleet"
)

// failoverPlan is how much to measure.
type failoverPlan struct {
	agents       int            // in the cluster whose agents are killed, stopped and frozen
	times        map[string]int // how often an agent is hit, by fault
	outageAgents int            // have running work when parts of the control plane die
	away         time.Duration  // of Temporal
	only         []string       // faults, by name; empty: all
}

// faultRow is what came of one fault.
type faultRow struct {
	Name   string `json:"name"` // for --only
	Fault  string `json:"fault"`
	Target string `json:"target"`
	Faults int    `json:"faults"`                         // how often it was done
	Twice  int    `json:"overlapped"`                     // attempts of one task, or work of two leaders
	Tasks  int    `json:"attempts_in_progress,omitempty"` // during an outage
	Rerun  int    `json:"run_again"`                      // attempts of these
	Lost   int    `json:"lost"`                           // of these, did not complete
	// What follows from times is in milliseconds.
	Moved int     `json:"tasks_moved"`
	P50   float64 `json:"p50_ms,omitempty"`
	P99   float64 `json:"p99_ms,omitempty"`
	Max   float64 `json:"max_ms,omitempty"`
	Met   bool    `json:"met"`

	times          []time.Duration // from the fault to the moved attempt's first instruction, or as Fault says
	limit, typical time.Duration   // targets of the 99th percentile and of the median; 0: none
	signal         syscall.Signal  // to agents; 0: it hits parts of the control plane
	led            bool            // it hits the leader of a cluster
}

// sumUp fills what follows from the rest.
func (r *faultRow) sumUp() {
	s := timesOf(r.times)
	r.Moved, r.P50, r.P99, r.Max = s.Count, s.P50, s.P99, s.Max
	r.Met = (r.limit == 0 || s.P99 <= milliseconds(r.limit)) && (r.typical == 0 || s.P50 <= milliseconds(r.typical)) &&
		r.Twice+r.Rerun+r.Lost == 0
}

// leaderCrew is how many agents the cluster with a leader has.
const leaderCrew = 3

// faults are in the order in which they are done: first those of agents, then those of parts of the control plane.
var faults = []faultRow{
	{Name: "kill", Fault: "SIGKILL, idempotent work", Target: "p50 ≤ 1.3 s, p99 ≤ 2 s",
		typical: 1300 * time.Millisecond, limit: 2 * time.Second, signal: syscall.SIGKILL},
	{Name: "freeze", Fault: "SIGSTOP", Target: "≤ 16 s (failure_threshold + 1 s)",
		limit: 16 * time.Second, signal: syscall.SIGSTOP},
	{Name: "stop", Fault: "SIGTERM: gap without anybody at work",
		Target: "≤ 0.3 s, nothing runs twice", limit: 300 * time.Millisecond, signal: syscall.SIGTERM},
	{Name: "leader", Fault: "leader killed (active_passive, fenced)",
		Target: "≤ 6 s (role lease + 1 s), never two at once", limit: 6 * time.Second, signal: syscall.SIGKILL, led: true},
	{Name: "hub", Fault: "hub process killed and restarted", Target: "0 run again, 0 lost"},
	{Name: "temporal", Fault: "embedded Temporal, gateway and worker killed, restarted on their file",
		Target: "0 run again, 0 lost"},
	{Name: "all", Fault: "whole control plane killed in one, restarted at once", Target: "0 run again, 0 lost"},
}

// faultNames are for --only.
func faultNames() []string {
	names := make([]string, len(faults))
	for i := range faults {
		names[i] = faults[i].Name
	}
	return names
}

type failoverReport struct {
	report
	Faults []faultRow `json:"faults"`
}

func failoverBenchmark() benchmark {
	p := failoverPlan{}
	var kills, freezes, stops, leaders int
	return benchmark{
		Command: &cobra.Command{
			Use:   "failover",
			Short: "Measure how long work stands still after faults",
			Long: `Measure the time from a fault to the first instruction of the moved attempt on another agent, with real processes that
are killed, stopped and frozen, and what becomes of running work when parts of the control plane die.

Faults: ` + strings.Join(faultNames(), ", ") + `.`,
			Example: "  mainstay bench failover\n  mainstay bench failover --only kill,leader --kills 100",
		},
		numbers: []number{
			{"agents", &p.agents, 20, 5, 1000, "agents with work, of which some are hit"},
			{"kills", &kills, 50, 1, 1000, "agents killed (SIGKILL)"},
			{"freezes", &freezes, 20, 1, 1000, "agents frozen (SIGSTOP)"},
			{"stops", &stops, 50, 1, 1000, "agents stopped (SIGTERM)"},
			{"leaders", &leaders, 10, 1, 1000, "leaders killed"},
			{"outage-agents", &p.outageAgents, 100, 1, 1000, "agents with work when parts of the control plane die"},
		},
		lengths: []length{{"away", &p.away, 20 * time.Second, 0, "how long Temporal is away"}},
		only:    &p.only,
		parts:   faultNames(),
		measure: func(ctx context.Context, r *run) error {
			p.times = map[string]int{"kill": kills, "freeze": freezes, "stop": stops, "leader": leaders}
			result := failoverReport{report: r.report}
			var err error
			result.Faults, err = p.measure(ctx, func(ctx context.Context) (*Installation, error) {
				return r.install(ctx, Setting{})
			}, r.story)
			return errors.Join(r.print(result, func(w io.Writer) { writeFaults(w, result.Faults) }), err)
		},
	}
}

// measure measures every fault of the plan: an outage in an installation of its own, the others in one of theirs.
func (p *failoverPlan) measure(
	ctx context.Context, install func(context.Context) (*Installation, error), progress io.Writer,
) ([]faultRow, error) {
	rows := []faultRow{}
	var c *crew
	stop := func() {
		if c != nil {
			c.Stop()
			c = nil
		}
	}
	defer func() { stop() }()
	for _, row := range faults {
		if !wanted(p.only, row.Name) {
			continue
		}
		var err error
		if c == nil || c.led != row.led || row.signal == 0 {
			stop()
			c, err = p.newCrew(ctx, &row, install)
		}
		if err == nil && row.signal == 0 {
			err = p.outage(ctx, c, &row, progress)
		} else if err == nil {
			err = c.hitAll(ctx, &row, p.times[row.Name], progress)
		}
		if err != nil {
			return rows, fmt.Errorf("%s: %w", row.Name, err)
		}
		row.sumUp()
		rows = append(rows, row)
	}
	return rows, nil
}

// newCrew starts an installation, and in it the agents that a fault hits, with work. It is to be stopped even after an
// error.
func (p *failoverPlan) newCrew(
	ctx context.Context, row *faultRow, install func(context.Context) (*Installation, error),
) (*crew, error) {
	i, err := install(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case row.signal == 0:
		return newCrew(i, "bench", p.outageAgents), nil
	case row.led:
		c := newCrew(i, "bench-leader", leaderCrew)
		c.safety, c.led = fleet.Fenced, true
		if err := c.begin(ctx, fleet.ActivePassive); err != nil {
			return c, err
		}
		return c, c.oneTask(ctx)
	}
	c := newCrew(i, "bench", p.agents)
	if err := c.begin(ctx, fleet.ActiveActive); err != nil {
		return c, err
	}
	return c, c.fill(ctx)
}

// outageWork is how long tasks go on that live through an outage: longer than everything that could have them run
// again, an attempt's backstop of 60 s and an outage of 20 s among it.
const outageWork = 100 * time.Second

// outage gives every agent a task, lets parts of the control plane die and come back, and counts attempts that were run
// again and tasks that did not complete. The agents' hub is a process of its own, but where all dies together.
func (p *failoverPlan) outage(ctx context.Context, c *crew, row *faultRow, progress io.Writer) error {
	fault := func(ctx context.Context) error { return c.away(ctx, 0) }
	if row.Name != "all" {
		if err := c.startServe(ctx, "hub"); err != nil {
			return err
		}
	}
	switch row.Name {
	case "hub":
		fault = func(ctx context.Context) error {
			c.hub.end()
			return c.startServe(ctx, "hub")
		}
	case "temporal":
		row.Fault += fmt.Sprintf(", %s away", p.away)
		fault = func(ctx context.Context) error { return c.away(ctx, p.away) }
	}
	if err := c.begin(ctx, fleet.ActiveActive); err != nil {
		return err
	}
	tasks, err := c.submit(ctx, len(c.ids), outageWork)
	if err != nil {
		return err
	}
	if err := c.awaitBegun(ctx, tasks); err != nil {
		return err
	}
	fmt.Fprintf(progress, "%s: %d agents at work\n", row.Fault, len(c.ids))
	begun := time.Now()
	if err := fault(ctx); err != nil {
		return err
	}
	fmt.Fprintf(progress, "%s: back after %s\n", row.Fault, time.Since(begun).Round(100*time.Millisecond))
	row.Faults, row.Tasks = 1, len(tasks)
	row.Lost, row.Rerun, err = c.outcome(ctx, tasks, outageWork+2*moveLimit)
	return err
}

// writeFaults prints the rows.
func writeFaults(w io.Writer, rows []faultRow) {
	t := newTable(w, "fault", "faults", "p50", "p99", "max", "else", "target", "met")
	seconds := func(ms float64) string { return fmt.Sprintf("%.2f s", ms/1000) }
	for i := range rows {
		r := &rows[i]
		p50, p99, longest := "", "", ""
		if r.Moved > 0 {
			p50, p99, longest = seconds(r.P50), seconds(r.P99), seconds(r.Max)
		}
		counts := fmt.Sprintf("%d tasks moved, %d overlapped", r.Moved, r.Twice)
		if r.Tasks > 0 {
			counts = fmt.Sprintf("%d attempts in progress: %d run again, %d lost", r.Tasks, r.Rerun, r.Lost)
		}
		met := "no"
		if r.Met {
			met = "yes"
		}
		t.row(r.Fault, r.Faults, p50, p99, longest, counts, r.Target, met)
	}
	t.flush()
}
