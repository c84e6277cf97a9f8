package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"mainstay.dev/mainstay/fleet"
)

// Dispatch is how long tasks take from their submission to the first instruction of their handler, at a rate that both
// sides can keep.
type Dispatch struct {
	Rate     float64      `json:"tasks_per_second"`
	Slots    int          `json:"slots"`
	Mainstay DispatchSide `json:"mainstay"`
	Bare     DispatchSide `json:"bare"`
}

// DispatchSide is one of the two.
type DispatchSide struct {
	Throughput   float64 `json:"throughput"`        // that the rate is taken from; 0: it was given
	Acknowledged Times   `json:"acknowledged"`      // from the acknowledgement to the first instruction
	Submitted    Times   `json:"submitted"`         // from just before the submission
	Early        int     `json:"begun_before_told"` // began before the acknowledgement: they count as 0
}

// judge sums up a side's tasks.
func (s *DispatchSide) judge(tasks []dispatched) {
	acknowledged, submitted := make([]time.Duration, len(tasks)), make([]time.Duration, len(tasks))
	for n, t := range tasks {
		submitted[n] = t.began.Sub(t.submitted)
		if acknowledged[n] = t.began.Sub(t.acknowledged); acknowledged[n] < 0 {
			acknowledged[n] = 0
			s.Early++
		}
	}
	s.Acknowledged, s.Submitted = timesOf(acknowledged), timesOf(submitted)
}

// write prints both sides and their ratio.
func (d *Dispatch) write(w io.Writer) {
	b, m := &d.Bare, &d.Mainstay
	t := newTable(
		w,
		fmt.Sprintf("%d tasks of each at %.1f tasks/s", m.Acknowledged.Count, d.Rate),
		"bare Temporal",
		"Mainstay",
		"ratio",
	)
	t.latencies("acknowledged → begin", b.Acknowledged, m.Acknowledged)
	t.latencies("submitted → begin", b.Submitted, m.Submitted)
	t.row("began before the acknowledgement was there (counted as 0)", b.Early, m.Early, "")
	if m.Throughput > 0 {
		t.compare("throughput that the rate is from", "%.1f tasks/s", b.Throughput, m.Throughput)
	}
	t.flush()
}

// measureDispatch compares both sides in turns, at half the throughput of the slower one unless the plan names a rate.
func measureDispatch(ctx context.Context, i *Installation, p *queuePlan, progress io.Writer) (*Dispatch, error) {
	temporal, err := i.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer temporal.Close()
	bare, err := newBare(temporal, "bare Temporal", bareQueue, p.pollers)
	if err != nil {
		return nil, err
	}
	defer bare.worker.Stop()
	crew := newCrew(i, "bench-latency", 1)
	crew.slots = p.depthSlots
	if err := crew.begin(ctx, fleet.ActiveActive); err != nil {
		return nil, err
	}
	defer crew.leave()
	sides := [2]side{bare, mainstay{i.Client, temporal, crew.cluster}}
	d := &Dispatch{Rate: p.rate, Slots: p.depthSlots}
	if d.Rate == 0 {
		for range 2 { // a round to warm up and one that counts
			for n, reached := range []*float64{&d.Bare.Throughput, &d.Mainstay.Throughput} {
				if *reached, err = throughput(ctx, sides[n], p.latencyTasks, latencyClients); err != nil {
					return nil, err
				}
			}
		}
		d.Rate = min(d.Bare.Throughput, d.Mainstay.Throughput) / 2
	}
	fmt.Fprintf(progress, "latency at %.1f tasks/s\n", d.Rate)
	var tasks [2][]dispatched
	err = inTurns(p.rounds, 2, func(round, n int) error {
		of, err := dispatch(ctx, sides[n], p.latencyTasks, time.Duration(float64(time.Second)/d.Rate))
		if err != nil {
			return err
		}
		tasks[n] = append(tasks[n], of...)
		var now DispatchSide
		now.judge(of)
		fmt.Fprintf(
			progress,
			"round %d/%d  %-14s p50 %.1f ms\n",
			round,
			p.rounds,
			sides[n].Name(),
			now.Acknowledged.P50,
		)
		return nil
	})
	d.Bare.judge(tasks[0])
	d.Mainstay.judge(tasks[1])
	return d, err
}

// latencyClients submit at a time when throughput is measured.
const latencyClients = 16
