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
	Early        int     `json:"begun_before_told"` // tasks that began before the acknowledgement was there: they count as 0
}

// Times sum up a set of durations, in milliseconds.
type Times struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// timesOf sums up.
func timesOf(all []time.Duration) Times {
	s := Summarize(all)
	return Times{Count: s.Count, P50: milliseconds(s.P50), P99: milliseconds(s.P99), Max: milliseconds(s.Max)}
}

// judgeDispatch sums up a side's tasks.
func judgeDispatch(tasks []dispatched) DispatchSide {
	var side DispatchSide
	acknowledged, submitted := make([]time.Duration, len(tasks)), make([]time.Duration, len(tasks))
	for n, t := range tasks {
		submitted[n] = t.began.Sub(t.submitted)
		if acknowledged[n] = t.began.Sub(t.acknowledged); acknowledged[n] < 0 {
			acknowledged[n] = 0
			side.Early++
		}
	}
	side.Acknowledged, side.Submitted = timesOf(acknowledged), timesOf(submitted)
	return side
}

// measureDispatch compares both sides in turns, at half the throughput of the slower one unless the plan names a rate.
func measureDispatch(ctx context.Context, i *Installation, p *QueuePlan, progress io.Writer) (*Dispatch, error) {
	c, err := i.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	bare, err := NewBare(c, p.Pollers)
	if err != nil {
		return nil, err
	}
	defer bare.Close()
	crew := newCrew(i, "bench-latency", 1, fleet.Idempotent)
	crew.slots = p.DepthSlots
	if err := crew.create(ctx, fleet.ActiveActive); err != nil {
		return nil, err
	}
	if err := crew.start(ctx, crew.ids...); err != nil {
		return nil, err
	}
	defer crew.stop()
	mainstay, err := NewMainstay(c, i.URL, crew.cluster, latencyClients)
	if err != nil {
		return nil, err
	}
	sides := [2]Side{bare, mainstay}
	d := &Dispatch{Rate: p.Rate, Slots: p.DepthSlots}
	var reached [2]float64
	if d.Rate == 0 {
		if reached, err = bestThroughputs(ctx, sides, p.LatencyTasks); err != nil {
			return nil, err
		}
		d.Rate = min(reached[0], reached[1]) / 2
	}
	fmt.Fprintf(progress, "latency at %.1f tasks/s\n", d.Rate)
	var tasks [2][]dispatched
	for round := range p.Rounds {
		for turn := range sides {
			n := (turn + round) % 2 // neither side always goes first
			of, err := dispatch(ctx, sides[n], p.LatencyTasks, time.Duration(float64(time.Second)/d.Rate))
			if err != nil {
				return nil, err
			}
			tasks[n] = append(tasks[n], of...)
			fmt.Fprintf(progress, "round %d/%d  %-14s p50 %.1f ms\n", round+1, p.Rounds, sides[n].Name(),
				judgeDispatch(of).Acknowledged.P50)
		}
	}
	d.Bare, d.Mainstay = judgeDispatch(tasks[0]), judgeDispatch(tasks[1])
	d.Bare.Throughput, d.Mainstay.Throughput = reached[0], reached[1]
	return d, nil
}

// latencyClients submit at a time when throughput is measured.
const latencyClients = 16

// bestThroughputs lets each side do a round to warm up and one that counts.
func bestThroughputs(ctx context.Context, sides [2]Side, tasks int) (reached [2]float64, err error) {
	for range 2 {
		for n, side := range sides {
			if reached[n], err = throughput(ctx, side, tasks, latencyClients); err != nil {
				return reached, err
			}
		}
	}
	return reached, nil
}
