package bench

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// Write prints what was measured as tables, ready for docs/BENCHMARKS.md.
func (q *Queue) Write(w io.Writer) {
	for _, part := range []struct {
		title string
		there bool
		rows  func(io.Writer)
	}{
		{"Order", q.Order != nil, func(w io.Writer) { q.Order.write(w) }},
		{"Two lanes, priority 1 for a capability and 5 for any agent", q.Lanes != nil,
			func(w io.Writer) { q.Lanes.write(w) }},
		{"Fairness", len(q.Fairness) > 0, q.writeFairness},
		{"Dispatch latency", q.Latency != nil, q.writeLatency},
		{"Control", q.Control != nil, q.writeControl},
		{"Depth", q.Depth != nil, q.writeDepth},
	} {
		if !part.there {
			continue
		}
		fmt.Fprintf(w, "\n%s:\n\n", part.title)
		t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
		part.rows(t)
		_ = t.Flush()
	}
}

func (o *Order) write(t io.Writer) {
	fmt.Fprintf(t, "| priority, of %d tasks to %d slots\t| tasks\t| began as\t| mean position\t|\n|---\t|---\t|---\t|---\t|\n", o.Tasks, o.Slots)
	for _, c := range o.Classes {
		fmt.Fprintf(t, "| %d\t| %d\t| %d … %d\t| %.0f\t|\n", c.Priority, c.Tasks, c.First, c.Last, c.Mean)
	}
	fmt.Fprintf(t, "| inversions\t| %d\t| \t| \t|\n", o.Inversions)
	fmt.Fprintf(t, "| began before one of a higher class, within the slots\t| %d\t| \t| \t|\n",
		o.Overtaking-o.Inversions)
	fmt.Fprintf(t, "| most of higher classes that one began before\t| %d\t| \t| \t|\n", o.Worst)
}

func (q *Queue) writeFairness(t io.Writer) {
	fmt.Fprint(t, "| weights, big : small\t| tasks\t| share of the small one in the first\t| by its weight\t| its first\t| its last\t| longest run of the big one\t|\n|---\t|---\t|---\t|---\t|---\t|---\t|---\t|\n")
	for _, f := range q.Fairness {
		fmt.Fprintf(t, "| %d : %d\t| %d : %d\t| %.1f %% of %d\t| %.1f %%\t| %d\t| %d\t| %d\t|\n",
			f.BigWeight, f.SmallWeight, f.Big, f.Small, 100*f.Share, f.Window, 100*f.Fair, f.First, f.Last, f.Run)
	}
}

func (q *Queue) writeDepth(t io.Writer) {
	d := q.Depth
	b, m := &d.Bare, &d.Mainstay
	fmt.Fprintf(t, "| %d tasks, %d slots\t| bare Temporal\t| Mainstay\t| ratio\t|\n|---\t|---\t|---\t|---\t|\n",
		d.Tasks, d.Slots)
	for _, rate := range []struct {
		name string
		b, m float64
	}{
		{"submitted, acknowledged", b.SubmittedPerSecond, m.SubmittedPerSecond},
		{"submitted, until queued", b.QueuedPerSecond, m.QueuedPerSecond},
		{"drained", b.DrainedPerSecond, m.DrainedPerSecond},
	} {
		fmt.Fprintf(t, "| %s\t| %.1f tasks/s\t| %.1f tasks/s\t| %.2f\t|\n", rate.name, rate.b, rate.m, rate.m/rate.b)
	}
	fmt.Fprintf(t, "| processor time per drained task\t| %.1f ms\t| %.1f ms\t| %.2f\t|\n", b.DrainCPU, m.DrainCPU,
		m.DrainCPU/b.DrainCPU)
	for _, when := range []string{whenEmpty, whenHalf, whenFull, whenDrained} {
		x, y := b.state(when), m.state(when)
		fmt.Fprintf(t, "| heap, %s (%d queued)\t| %s\t| %s\t| %.2f\t|\n", when, y.Queued, mebibytes(x.Heap),
			mebibytes(y.Heap), float64(y.Heap)/float64(x.Heap))
	}
	for _, when := range []string{whenEmpty, whenHalf, whenFull, whenDrained} {
		x, y := b.state(when), m.state(when)
		fmt.Fprintf(t, "| resident, %s\t| %s\t| %s\t| %.2f\t|\n", when, mebibytes(x.Resident), mebibytes(y.Resident),
			float64(y.Resident)/float64(x.Resident))
	}
	bareWhole, bareHalf := b.HeapPerTask()
	whole, half := m.HeapPerTask()
	fmt.Fprintf(t, "| heap for each queued task\t| %s\t| %s\t| \t|\n", kibibyte(bareWhole), kibibyte(whole))
	fmt.Fprintf(t, "| … in the second half alone (0: flat)\t| %s\t| %s\t| \t|\n", kibibyte(bareHalf), kibibyte(half))
	for _, when := range []string{whenEmpty, whenFull, whenDrained} {
		fmt.Fprintf(t, "| Temporal's process, resident, %s\t| %s\t| %s\t| \t|\n", when,
			mebibytes(b.state(when).Temporal), mebibytes(m.state(when).Temporal))
	}
}

func (q *Queue) writeLatency(t io.Writer) {
	l := q.Latency
	fmt.Fprintf(t, "| %d tasks of each at %.1f tasks/s\t| bare Temporal\t| Mainstay\t| ratio\t|\n|---\t|---\t|---\t|---\t|\n", l.Mainstay.Acknowledged.Count, l.Rate)
	row := func(name string, x, y float64) {
		fmt.Fprintf(t, "| %s\t| %.1f ms\t| %.1f ms\t| %.2f\t|\n", name, x, y, y/x)
	}
	b, m := l.Bare.Acknowledged, l.Mainstay.Acknowledged
	row("acknowledged → begin, p50", b.P50, m.P50)
	row("acknowledged → begin, p99", b.P99, m.P99)
	row("acknowledged → begin, max", b.Max, m.Max)
	b, m = l.Bare.Submitted, l.Mainstay.Submitted
	row("submitted → begin, p50", b.P50, m.P50)
	row("submitted → begin, p99", b.P99, m.P99)
	row("submitted → begin, max", b.Max, m.Max)
	fmt.Fprintf(t, "| began before the acknowledgement was there (counted as 0)\t| %d\t| %d\t| \t|\n", l.Bare.Early,
		l.Mainstay.Early)
	if l.Mainstay.Throughput > 0 {
		fmt.Fprintf(t, "| throughput that the rate is from\t| %.1f tasks/s\t| %.1f tasks/s\t| %.2f\t|\n",
			l.Bare.Throughput, l.Mainstay.Throughput, l.Mainstay.Throughput/l.Bare.Throughput)
	}
}

func (q *Queue) writeControl(t io.Writer) {
	fmt.Fprint(t, "|\t| times\t| p50\t| max\t|\n|---\t|---\t|---\t|---\t|\n")
	for _, row := range []struct {
		name  string
		times Times
	}{
		{"cancel → all processes of a running command ended", q.Control.Cancel},
		{"offline agent's process started → its pinned task began", q.Control.Return},
		{"offline agent's registration acknowledged → its pinned task began", q.Control.Registered},
	} {
		fmt.Fprintf(t, "| %s\t| %d\t| %.1f ms\t| %.1f ms\t|\n", row.name, row.times.Count, row.times.P50, row.times.Max)
	}
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// kibibyte never shows a negative zero.
func kibibyte(n float64) string { return fmt.Sprintf("%.1f KiB", math.Round(n/102.4)/10+0) }
