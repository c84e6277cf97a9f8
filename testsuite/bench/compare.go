package bench

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Plan is how much to measure.
type Plan struct {
	Rounds  int // of each side, in turns
	Tasks   int // in each throughput round
	Clients int // that submit at a time in a throughput round
	// LatencyTasks are submitted in each latency round, one every LatencyEvery.
	LatencyTasks int
	LatencyEvery time.Duration
	// CPU is the processor time used so far, to charge throughput rounds; nil: not measured.
	CPU func() CPU
}

// CPU is processor time.
type CPU struct {
	Server time.Duration // of the process with Temporal and the control plane
	All    time.Duration // of all processes that take part, this one included
	Busy   time.Duration // of all programs of the machine
}

// DefaultPlan takes about two minutes on two cores.
func DefaultPlan() Plan {
	return Plan{Rounds: 5, Tasks: 400, Clients: 16, LatencyTasks: 100, LatencyEvery: 50 * time.Millisecond}
}

// Measured is what one side did.
type Measured struct {
	Name      string
	PerSecond []float64 // by round
	Latency   []time.Duration
	CPU       CPU // of the throughput rounds, for Tasks
	Tasks     int
}

// Compare runs both sides in turns, after a round that does not count, and tells progress.
func Compare(ctx context.Context, p Plan, sides [2]Side, progress io.Writer) ([2]Measured, error) {
	var measured [2]Measured
	for i, s := range sides {
		measured[i].Name = s.Name()
		if _, err := throughput(ctx, s, p.Tasks/4, p.Clients); err != nil {
			return measured, err
		}
	}
	for round := range p.Rounds {
		for turn := range sides {
			i := (turn + round) % 2 // neither side always goes first
			perSecond, err := p.charge(&measured[i], func() (float64,
				error) {
				return throughput(ctx, sides[i], p.Tasks, p.Clients)
			})
			if err != nil {
				return measured, err
			}
			times, err := latency(ctx, sides[i], p.LatencyTasks, p.LatencyEvery)
			if err != nil {
				return measured, err
			}
			measured[i].PerSecond = append(measured[i].PerSecond, perSecond)
			measured[i].Latency = append(measured[i].Latency, times...)
			fmt.Fprintf(progress, "round %d/%d  %-14s %6.1f tasks/s  p50 %s\n", round+1, p.Rounds, sides[i].Name(),
				perSecond, Summarize(times).P50.Round(100*time.Microsecond))
		}
	}
	return measured, nil
}

// charge runs a throughput round and adds the processor time that it took.
func (p *Plan) charge(m *Measured, round func() (float64, error)) (float64, error) {
	m.Tasks += p.Tasks
	if p.CPU == nil {
		return round()
	}
	before := p.CPU()
	perSecond, err := round()
	after := p.CPU()
	m.CPU.Server += after.Server - before.Server
	m.CPU.All += after.All - before.All
	m.CPU.Busy += after.Busy - before.Busy
	return perSecond, err
}

// WriteTable prints both sides and their ratio, ready for docs/BENCHMARKS.md.
func WriteTable(w io.Writer, bare, mainstay Measured) {
	b, m := Summarize(bare.Latency), Summarize(mainstay.Latency)
	pb, pm := Median(bare.PerSecond), Median(mainstay.PerSecond)
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintf(t, "|\t| %s\t| %s\t| ratio\t|\n", bare.Name, mainstay.Name)
	fmt.Fprintf(t, "|---\t|---\t|---\t|---\t|\n")
	fmt.Fprintf(t, "| throughput, median of %d rounds\t| %.1f tasks/s\t| %.1f tasks/s\t| %.2f\t|\n",
		len(bare.PerSecond), pb, pm, pm/pb)
	fmt.Fprintf(t, "| throughput, median of the rounds' ratios\t| \t| \t| %.2f\t|\n",
		MedianRatio(mainstay.PerSecond, bare.PerSecond))
	row := func(name string, x, y time.Duration) {
		fmt.Fprintf(t, "| %s\t| %.1f ms\t| %.1f ms\t| %.2f\t|\n", name, milliseconds(x), milliseconds(y),
			float64(y)/float64(x))
	}
	row("submit → begin, p50", b.P50, m.P50)
	row("submit → begin, p99", b.P99, m.P99)
	row("submit → begin, max", b.Max, m.Max)
	if bare.CPU.All > 0 && mainstay.CPU.All > 0 {
		row("processor time per task, server process", perTask(bare.CPU.Server, bare.Tasks),
			perTask(mainstay.CPU.Server, mainstay.Tasks))
		row("processor time per task, all processes", perTask(bare.CPU.All, bare.Tasks),
			perTask(mainstay.CPU.All, mainstay.Tasks))
	}
	if bare.CPU.Busy > 0 && mainstay.CPU.Busy > 0 {
		fmt.Fprintf(t, "| share of used processor time that other programs took\t| %.0f %%\t| %.0f %%\t| \t|\n",
			bare.CPU.others(), mainstay.CPU.others())
	}
	_ = t.Flush()
}

// others is the share in percent of the used processor time that programs took which have no part in the measurement.
// With more than a few per cent, throughput tells little.
func (c CPU) others() float64 { return 100 * max(0, c.Busy-c.All).Seconds() / c.Busy.Seconds() }

func perTask(d time.Duration, tasks int) time.Duration { return d / time.Duration(max(tasks, 1)) }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
