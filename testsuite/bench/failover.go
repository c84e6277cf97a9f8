package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// FailoverPlan is how much to measure.
type FailoverPlan struct {
	Agents  int // in the cluster whose agents are killed, stopped and frozen
	Kills   int
	Freezes int
	Stops   int
	Leaders int
	// OutageAgents have running work when parts of the control plane die.
	OutageAgents int
	Away         time.Duration // of Temporal
	Only         []string      // faults, by name; empty: all
}

// DefaultFailoverPlan takes about ten minutes on two cores.
func DefaultFailoverPlan() FailoverPlan {
	return FailoverPlan{Agents: 20, Kills: 50, Freezes: 20, Stops: 50, Leaders: 10, OutageAgents: 100,
		Away: 20 * time.Second}
}

// Row is what came of one fault.
type Row struct {
	Name   string // for --only
	Fault  string
	Target string
	Faults int             // how often it was done
	Times  []time.Duration // from the fault to the moved attempt's first instruction, or as Fault says
	Limit  time.Duration   // for the longest of Times; 0: none
	P50    time.Duration   // target of the median; 0: none
	Twice  int             // attempts of one task that overlapped, or work of two leaders at once
	Tasks  int             // in progress during an outage
	Rerun  int             // attempts of these that were run again
	Lost   int             // of these, did not complete
}

// Met reports whether the target was met. The limit holds for the 99th percentile.
func (r *Row) Met() bool {
	s := Summarize(r.Times)
	return (r.Limit == 0 || s.P99 <= r.Limit) && (r.P50 == 0 || s.P50 <= r.P50) && r.Twice+r.Rerun+r.Lost == 0
}

func (r *Row) took(moved []move) {
	r.Faults++
	for _, m := range moved {
		r.Times = append(r.Times, m.begin.Sub(m.fault))
	}
}

// Faults are the names of all faults, in the order in which they are done.
func Faults() []string {
	var names []string
	for _, f := range faults {
		names = append(names, f.row.Name)
	}
	return names
}

const (
	crewFault   = iota // the cluster of FailoverPlan.Agents
	leaderFault        // a cluster of its own with a leader
	outageFault        // FailoverPlan.OutageAgents
)

var faults = []struct {
	kind int
	row  Row
}{
	{crewFault, Row{Name: "kill", Fault: "SIGKILL, idempotent work", Target: "p50 ≤ 1.3 s, p99 ≤ 2 s",
		P50: 1300 * time.Millisecond, Limit: 2 * time.Second}},
	{crewFault, Row{Name: "freeze", Fault: "SIGSTOP", Target: "≤ 16 s (failure_threshold + 1 s)",
		Limit: 16 * time.Second}},
	{crewFault, Row{Name: "stop", Fault: "SIGTERM: gap without anybody at work", Target: "≤ 0.3 s, nothing runs twice",
		Limit: 300 * time.Millisecond}},
	{leaderFault, Row{Name: "leader", Fault: "leader killed (active_passive, fenced)",
		Target: "≤ 6 s (role lease + 1 s), never two at once", Limit: 6 * time.Second}},
	{outageFault, Row{Name: "hub", Fault: "hub process killed and restarted", Target: "0 run again, 0 lost"}},
	{outageFault, Row{Name: "temporal", Fault: "embedded Temporal, gateway and worker killed, restarted on their file",
		Target: "0 run again, 0 lost"}},
	{outageFault, Row{Name: "all", Fault: "whole control plane killed in one, restarted at once",
		Target: "0 run again, 0 lost"}},
}

// Failover measures every fault of the plan. dir makes a folder for each installation.
func Failover(
	ctx context.Context, p FailoverPlan, install func(context.Context) (*Installation, error), progress io.Writer,
) ([]Row, error) {
	var rows []Row
	for _, kind := range []int{crewFault, leaderFault, outageFault} {
		done, err := p.group(ctx, kind, install, progress)
		rows = append(rows, done...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// group measures the faults of one kind in one installation.
func (p *FailoverPlan) group(
	ctx context.Context, kind int, install func(context.Context) (*Installation, error), progress io.Writer,
) (rows []Row, err error) {
	var wanted []Row
	for _, f := range faults {
		if f.kind == kind && (len(p.Only) == 0 || slices.Contains(p.Only, f.row.Name)) {
			wanted = append(wanted, f.row)
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	if kind == outageFault {
		for _, row := range wanted {
			if err := p.outage(ctx, &row, install, progress); err != nil {
				return rows, fmt.Errorf("%s: %w", row.Name, err)
			}
			rows = append(rows, row)
		}
		return rows, nil
	}
	i, err := install(ctx)
	if err != nil {
		return nil, err
	}
	defer i.Stop()
	c, err := p.crewFor(ctx, kind, i)
	if err != nil {
		return nil, err
	}
	for _, row := range wanted {
		if err := p.measure(ctx, c, &row, progress); err != nil {
			return rows, fmt.Errorf("%s: %w", row.Name, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (p *FailoverPlan) crewFor(ctx context.Context, kind int, i *Installation) (*crew, error) {
	if kind == leaderFault {
		c, err := startCrew(ctx, i, "bench-leader", leaderCrew, fleet.ActivePassive, fleet.Fenced)
		if err != nil {
			return nil, err
		}
		return c, c.oneTask(ctx)
	}
	c, err := startCrew(ctx, i, "bench", p.Agents, fleet.ActiveActive, fleet.Idempotent)
	if err != nil {
		return nil, err
	}
	return c, c.fill(ctx, c.ids...)
}

func (p *FailoverPlan) measure(ctx context.Context, c *crew, row *Row, progress io.Writer) error {
	switch row.Name {
	case "kill":
		return c.kills(ctx, p.Kills, row, progress)
	case "freeze":
		return c.freezes(ctx, p.Freezes, row, progress)
	case "stop":
		return c.terminations(ctx, p.Stops, row, progress)
	}
	return c.leaders(ctx, p.Leaders, row, progress)
}

// outage measures one outage in an installation of its own. The agents' hub is a process of its own, but where all dies
// together.
func (p *FailoverPlan) outage(
	ctx context.Context, row *Row, install func(context.Context) (*Installation, error), progress io.Writer,
) error {
	i, err := install(ctx)
	if err != nil {
		return err
	}
	defer i.Stop()
	fault := func(ctx context.Context) error { return i.away(ctx, 0) }
	if row.Name != "all" {
		if err := i.StartHub(ctx); err != nil {
			return err
		}
	}
	switch row.Name {
	case "hub":
		fault = func(ctx context.Context) error {
			i.KillHub()
			return i.StartHub(ctx)
		}
	case "temporal":
		row.Fault += fmt.Sprintf(", %s away", p.Away)
		fault = func(ctx context.Context) error { return i.away(ctx, p.Away) }
	}
	c, err := startCrew(ctx, i, "bench", p.OutageAgents, fleet.ActiveActive, fleet.Idempotent)
	if err != nil {
		return err
	}
	return c.outage(ctx, row, progress, fault)
}

// WriteFailovers prints the rows, ready for docs/BENCHMARKS.md.
func WriteFailovers(w io.Writer, rows []Row) {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintf(t, "| fault\t| faults\t| p50\t| p99\t| max\t| else\t| target\t| met\t|\n")
	fmt.Fprintf(t, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|\n")
	for i := range rows {
		r := &rows[i]
		p50, p99, longest := "", "", ""
		if s := Summarize(r.Times); s.Count > 0 {
			p50, p99, longest = seconds(s.P50), seconds(s.P99), seconds(s.Max)
		}
		fmt.Fprintf(t, "| %s\t| %d\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t|\n", r.Fault, r.Faults, p50, p99, longest,
			r.counts(), r.Target, yes(r.Met()))
	}
	_ = t.Flush()
}

func (r *Row) counts() string {
	if r.Tasks > 0 {
		return fmt.Sprintf("%d attempts in progress: %d run again, %d lost", r.Tasks, r.Rerun, r.Lost)
	}
	return fmt.Sprintf("%d tasks moved, %d overlapped", len(r.Times), r.Twice)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
